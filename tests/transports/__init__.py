"""Connections of every kind, against a real server."""
