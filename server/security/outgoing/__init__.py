"""Credentials for logons of this instance to other instances."""
