"""Thin asyncio shells that carry bytes between sockets and sessions."""
