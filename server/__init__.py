"""The instance: transports, commands, topics and everything that a running server needs."""
