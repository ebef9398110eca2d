"""Bytes to commands and back, without I/O: shared by the server and the client."""
