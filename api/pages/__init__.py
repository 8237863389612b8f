"""The web pages: HTML made on the server and readable without JavaScript, which draws charts and handles jobs."""
