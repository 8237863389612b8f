"""Verbs that list, look up, export and import results."""
