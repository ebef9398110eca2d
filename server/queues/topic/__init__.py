"""Queues as topics: the layer between the queue core (server/queues/core/) and the server."""
