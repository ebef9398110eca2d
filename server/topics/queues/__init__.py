"""Queues as topics: the layer between the queue core (server/queues/) and the server."""
