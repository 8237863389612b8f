"""Penalties that predict a config's cost before it runs."""
