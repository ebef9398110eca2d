"""Offsets of a stream: which messages a micro-batch consists of, as small JSON.

    {"bookmark": "77|9|", "ranges": {"[77|1|:77|4|]": 4, "[77|5|:77|9|]": 5}}

The bookmark is that of the last message, where the next batch goes on. The ranges are the batch
itself: bookmark ranges of the transaction log, each with the number of messages in it. A range is
one task. So a batch that is run again, by another process and years later, is divided in the same
way and has the same rows in the same order; sinks that number what they write rely on it. The
numbers tell whether the log still has everything.

Of a stream that may go on at another server, the offset also has the end of what has been read: the
first of the last thousand messages or two, their number, and a digest of their bookmarks. A server
that has these messages in another order has others before the last one, or some behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

Offset: TypeAlias = dict[str, Any]

_DIGEST_SIZE: Final = 16

STEP: Final = 1000
"""A batch is cut only between so many messages."""


class Range(NamedTuple):
    """Consecutive messages of the log.

    Attributes:
        span: from the first to the last, as `[begin:end]`.
        rows: how many there are.
    """

    span: str
    rows: int

    @property
    def begin(self) -> str:
        """The bookmark of the first."""
        return self.span[1:].partition(":")[0]

    @property
    def end(self) -> str:
        """The bookmark of the last."""
        return self.span[:-1].partition(":")[2]


class End(NamedTuple):
    """The end of what a stream has read.

    Attributes:
        first: the bookmark of its first message.
        rows: how many messages it is.
        digest: of their bookmarks, in their order.
    """

    first: str
    rows: int
    digest: str

    @classmethod
    def of(cls, bookmarks: Sequence[str]) -> End:
        """The end that consists of messages with some bookmarks, at least one."""
        digest = blake2b(",".join(bookmarks).encode(), digest_size=_DIGEST_SIZE)
        return cls(bookmarks[0], len(bookmarks), digest.hexdigest())


def end_of(offset: Offset) -> End | None:
    """The end of what has been read, if the offset says that."""
    end = offset.get("end")
    return None if end is None else End(*end)


def initial(bookmark: str) -> Offset:
    """Where a stream begins that has not read anything."""
    return {"bookmark": bookmark, "ranges": {}}


def bookmark_of(offset: Offset) -> str:
    """Where to go on."""
    return str(offset["bookmark"])


def ranges_of(offset: Offset) -> list[Range]:
    """What the batch that ends with an offset consists of."""
    return [Range(span, rows) for span, rows in offset["ranges"].items()]


class BatchPlan:
    """Collects the bookmarks of a batch, as its messages are seen.

    Attributes:
        rows: how many messages there are.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._last = ""
        self._cuts: list[tuple[str, str]] = []
        """Where it can be cut, every `STEP` messages: the bookmarks before and behind."""

    def add(self, bookmarks: Sequence[str]) -> None:
        """Take note of messages, at least one, in their order."""
        for position in range(-self.rows % STEP, len(bookmarks), STEP):
            before = bookmarks[position - 1] if position else self._last
            self._cuts.append((before, bookmarks[position]))
        self._last = bookmarks[-1]
        self.rows += len(bookmarks)

    def offset(self, partitions: int) -> Offset:
        """The end of the batch, which has at least one message.

        Args:
            partitions: into how many ranges to divide it at most.
        """
        steps = len(self._cuts)
        count = min(partitions, steps)
        begins = [steps * number // count for number in range(count)]
        ranges = {}
        for begin, end in zip(begins, [*begins[1:], None], strict=True):
            last = self._last if end is None else self._cuts[end][0]
            rows = (self.rows if end is None else end * STEP) - begin * STEP
            ranges[f"[{self._cuts[begin][1]}:{last}]"] = rows
        return {"bookmark": self._last, "ranges": ranges}
