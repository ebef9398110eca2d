"""Regular expressions: matching in bounded time."""
