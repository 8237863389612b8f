"""Verbs that run the REST service and manage its tokens."""
