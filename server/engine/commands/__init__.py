"""The commands of clients: one module per command."""
