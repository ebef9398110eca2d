"""Compiled readers and writers of columns."""
