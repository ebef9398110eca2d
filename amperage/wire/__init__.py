"""Encodes and decodes commands, without I/O: shared by the server and the client."""
