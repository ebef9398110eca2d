"""Queues: the core that decides, and queues as topics."""
