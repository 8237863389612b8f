"""The REST service and its web pages."""
