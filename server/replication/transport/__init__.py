"""Connections between instances: sockets, reconnection, and the required security."""
