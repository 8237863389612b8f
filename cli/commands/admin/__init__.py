"""Verbs that check, upgrade and back up the database."""
