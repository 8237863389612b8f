"""A problem's page: its trials as columns, and the figures, tables and charts that are made of them."""
