"""Modules of one's own, written in Python."""
