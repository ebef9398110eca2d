"""What a client can ask for: one module per command."""
