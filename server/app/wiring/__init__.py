"""Builds a running instance from its description."""
