"""Queries under way: run in slices between other work, and framed for the client that asked."""
