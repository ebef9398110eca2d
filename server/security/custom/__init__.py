"""Custom modules, written in Python."""
