"""Limits the memory of the bodies that are being sent to all peers.

A slow reader retains a document for as long as it reads, and every sample creates new ones.
"""

from __future__ import annotations

from collections import Counter

from server.admin.http.limits import MAX_BYTES_BEING_SENT, SEND_CHUNK_SIZE
from server.admin.http.messages import HttpBody, HttpDocument


class SendBudget:
    """The documents that are being sent, and their memory.

    Args:
        max_bytes: the limit, in bytes.
    """

    def __init__(self, max_bytes: int = MAX_BYTES_BEING_SENT) -> None:
        self._max_bytes = max_bytes
        self._reserved_bytes = 0
        self._documents: Counter[HttpBody] = Counter()

    def reserve(self, body: HttpBody) -> bool:
        """Count a body that is about to be sent; return False if it exceeds the limit.

        A small body is always admitted.
        """
        if not isinstance(body, HttpDocument):
            return True
        size = len(body.content)
        if body not in self._documents:
            if size > SEND_CHUNK_SIZE and self._reserved_bytes + size > self._max_bytes:
                return False
            self._reserved_bytes += size
        self._documents[body] += 1
        return True

    def release(self, body: HttpBody) -> None:
        """Note that a body has been sent, or was not admitted."""
        if not isinstance(body, HttpDocument) or body not in self._documents:
            return
        self._documents[body] -= 1
        if not self._documents[body]:
            del self._documents[body]
            self._reserved_bytes -= len(body.content)
