"""Batches of entries from other instances, on their way into topics."""
