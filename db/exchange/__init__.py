"""Formats in which results leave the store and come back."""
