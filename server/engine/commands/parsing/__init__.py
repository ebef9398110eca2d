"""Parsing of commands: options, topics, and the terms of queries."""
