"""Verbs that run and guard the REST service."""
