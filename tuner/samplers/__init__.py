"""Samplers that choose which config to try next."""
