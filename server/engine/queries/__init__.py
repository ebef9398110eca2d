"""Queries in progress: executed in time slices, and framed for the client that sent them."""
