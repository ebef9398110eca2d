"""Queues as topics: what the rooms above and below see of them."""
