"""The REST endpoints, one subject a module."""
