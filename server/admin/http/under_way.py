"""What is being sent to all peers, and how much memory that takes.

Who reads slowly keeps a document for as long as that takes, and every sample has new ones.
"""

from __future__ import annotations

from collections import Counter

from server.admin.http.limits import MOST_UNDER_WAY, PIECE
from server.admin.http.messages import Body, Document


class UnderWay:
    """Documents that are being sent, and how much memory that takes.

    Args:
        most: bytes.
    """

    def __init__(self, most: int = MOST_UNDER_WAY) -> None:
        self._most = most
        self._size = 0
        self._documents: Counter[Body] = Counter()

    def begin(self, body: Body) -> bool:
        """A body is to be sent; whether there is room for it. Small ones always have it."""
        if not isinstance(body, Document):
            return True
        size = len(body.content)
        if body not in self._documents:
            if size > PIECE and self._size + size > self._most:
                return False
            self._size += size
        self._documents[body] += 1
        return True

    def end(self, body: Body) -> None:
        """A body has been sent; one for which there was no room may be among these."""
        if not isinstance(body, Document) or body not in self._documents:
            return
        self._documents[body] -= 1
        if not self._documents[body]:
            del self._documents[body]
            self._size -= len(body.content)
