"""The server log: the catalogue of messages and the targets that they are written to."""
