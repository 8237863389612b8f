"""Work in processes beside the server: look-ups that search, and imports."""
