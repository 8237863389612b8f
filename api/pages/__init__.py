"""The page: HTML made on the server, readable without JavaScript; scripts only draw the charts and copy texts."""
