"""Bookmarks name messages: `client name hash|sequence|`, both unsigned 64-bit decimals."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b


@lru_cache(maxsize=4096)
def client_hash(client_name: str) -> int:
    """The number that stands for a client's name in bookmarks.

    The same name has the same number on every instance and in every run.
    """
    digest = blake2b(client_name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big")
