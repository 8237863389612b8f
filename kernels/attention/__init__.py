"""Specs of attention, one form per module."""
