"""Subscriptions, the matching of messages with them, and the output buffers of clients."""
