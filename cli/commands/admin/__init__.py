"""Verbs that look after the database."""
