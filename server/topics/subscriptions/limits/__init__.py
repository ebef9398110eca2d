"""Limits of subscriptions: memory, slow clients, and failures."""
