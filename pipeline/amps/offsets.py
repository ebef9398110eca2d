"""Offsets of a stream: the identity of the messages of a micro-batch, as small JSON.

    {"bookmark": "5|900|", "ranges": {"(5|700|:5|810|]": 4, "(5|810|:5|900|]": 5}, "bytes": 812}

The bookmark is where the next batch begins: a place in the transaction log, whose number here is 5.
The ranges are the batch itself: parts of the log, each with its number of messages. A range is one
task. So a batch that is run again, by another process and years later, is divided in the same way
and has the same rows in the same order; sinks that number their rows rely on it. The numbers show
whether the log still has everything.

For a stream that may resume at another server, bookmarks of messages replace the places of a log:
the bookmark of the last message, and those of the first and the last of each range, as
`[77|1|:77|4|]`. All offsets of earlier versions have this form, and remain valid. The offset then
also identifies the messages, because another server may have them in another order. It has a digest
of the bookmarks of each range. For the end of the messages read (a thousand or two), it has the
first bookmark, their number, and their digest. A server that has these messages contiguously from
the first one on, in any order, has been read up to there. Digests are sums, so that they do not
depend on the order of messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

from xxhash import xxh3_128_intdigest

from pipeline.amps.log_measure import LogMeasure
from pipeline.errors import PipelineError
from server.storage.journal import BookmarkError, parse_bookmark

LogOffset: TypeAlias = dict[str, Any]

_DIGEST_MASK: Final = 2**128 - 1
_DIGEST_LENGTH: Final = 32

STEP: Final = 1000
"""A batch is only divided at multiples of this number of messages."""


class MessageRange(NamedTuple):
    """Consecutive messages of the log.

    Attributes:
        span: from the first to the last, as `[begin:end]`.
        rows: the number of messages.
        digest: the digest of their bookmarks; None if unknown.
    """

    span: str
    rows: int
    digest: str | None = None

    @property
    def begin(self) -> str:
        """The bookmark of the first message."""
        return self.span[1:].partition(":")[0]

    @property
    def end(self) -> str:
        """The bookmark of the last message."""
        return self.span[:-1].partition(":")[2]


class MessageEnd(NamedTuple):
    """The end of the messages that a stream has read.

    Attributes:
        first: the bookmark of its first message.
        rows: the number of its messages.
        digest: the digest of their bookmarks.
    """

    first: str
    rows: int
    digest: str


class LastMessages:
    """The last messages that a stream has read; advances with the stream.

    Args:
        max_count: the number of messages (up to twice as many) whose bookmarks are kept.
    """

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._bookmarks: list[str] = []
        self._digest = 0

    def reset(self, bookmarks: Sequence[str]) -> None:
        """Discard the messages, and begin with other ones."""
        self._bookmarks, self._digest = [], 0
        self.add(bookmarks)

    def add(self, bookmarks: Sequence[str]) -> None:
        """Append further messages."""
        self._bookmarks += bookmarks
        self._digest += _sum(bookmarks)
        if len(self._bookmarks) > 2 * self._max_count:
            self._digest -= _sum(self._bookmarks[: -self._max_count])
            del self._bookmarks[: -self._max_count]

    @property
    def last(self) -> str | None:
        """The bookmark of the last message; None if there is none."""
        return self._bookmarks[-1] if self._bookmarks else None

    @property
    def end(self) -> MessageEnd | None:
        """The end that these messages form; None if there is none."""
        if not self._bookmarks:
            return None
        return MessageEnd(self._bookmarks[0], len(self._bookmarks), _shown(self._digest))


def digest_of(bookmarks: Sequence[str]) -> str:
    """Return the digest of messages by their bookmarks, in any order."""
    return _shown(_sum(bookmarks))


def _sum(bookmarks: Iterable[str]) -> int:
    return sum(xxh3_128_intdigest(bookmark.encode()) for bookmark in bookmarks)


def _shown(digest: int) -> str:
    return f"{digest & _DIGEST_MASK:0{_DIGEST_LENGTH}x}"


def end_of(offset: LogOffset) -> MessageEnd | None:
    """Return the end of the messages read, if the offset has it."""
    end = offset.get("read")
    return None if end is None else MessageEnd(*end)


def initial(bookmark: str) -> LogOffset:
    """Return the offset of a stream that has not read anything."""
    return {"bookmark": bookmark, "ranges": {}}


def measured(measure: LogMeasure) -> LogOffset:
    """Return the end offset of a batch that the server has measured."""
    ranges = measure.ranges() if measure.rows else {}
    return {"bookmark": measure.end, "ranges": ranges, "bytes": measure.size}


def bookmark_of(offset: LogOffset) -> str:
    """Return the bookmark where to resume.

    Raises:
        PipelineError: the offset is not one of this source.
    """
    bookmark: Any = offset.get("bookmark") if isinstance(offset, dict) else None
    try:
        parse_bookmark(bookmark)
    except (BookmarkError, TypeError, AttributeError):
        raise _foreign(offset) from None
    return str(bookmark)


def ranges_of(offset: LogOffset) -> list[MessageRange]:
    """Return the ranges of the batch that ends with an offset.

    Raises:
        PipelineError: the offset is not one of this source.
    """
    spans = offset.get("ranges") if isinstance(offset, dict) else None
    if not isinstance(spans, dict):
        raise _foreign(offset)
    digests = offset.get("digests") or repeat(None)
    ranges = zip(spans.items(), digests, strict=False)
    return [MessageRange(span, rows, digest) for (span, rows), digest in ranges]


def _foreign(offset: LogOffset) -> PipelineError:
    return PipelineError(
        f"checkpoint: the offset {str(offset)[:200]} is not one of format('amps'), expected a"
        " bookmark and ranges: it is damaged, or belongs to another source; use the checkpoint of"
        " this stream, or a new one"
    )


class BatchPlan:
    """Collects the bookmarks of a batch while its messages are read.

    Args:
        has_digests: whether the offset is to identify the messages.

    Attributes:
        rows: the number of messages.
    """

    def __init__(self, *, has_digests: bool) -> None:
        self.rows = 0
        self._has_digests = has_digests
        self._step_digests: list[int] = []  # of each step
        self._last_bookmark = ""
        self._cut_bookmarks: list[tuple[str, str]] = []
        """Where it can be divided, every `STEP` messages: the bookmarks before and after."""

    def add(self, bookmarks: Sequence[str]) -> None:
        """Append messages, at least one, in their order."""
        for position in range(-self.rows % STEP, len(bookmarks), STEP):
            before = bookmarks[position - 1] if position else self._last_bookmark
            self._cut_bookmarks.append((before, bookmarks[position]))
        if self._has_digests:
            self._add_digests(bookmarks)
        self._last_bookmark = bookmarks[-1]
        self.rows += len(bookmarks)

    def _add_digests(self, bookmarks: Sequence[str]) -> None:
        position = 0
        while position < len(bookmarks):
            row = self.rows + position
            step_bookmarks = bookmarks[position : position + STEP - row % STEP]
            if row % STEP == 0:
                self._step_digests.append(0)
            self._step_digests[-1] += _sum(step_bookmarks)
            position += len(step_bookmarks)

    def offset(self, partitions: int) -> LogOffset:
        """Return the end offset of the batch, which has at least one message.

        Args:
            partitions: the maximum number of ranges.
        """
        steps = len(self._cut_bookmarks)
        count = min(partitions, steps)
        begins = [steps * number // count for number in range(count)]
        ranges = {}
        digests = []
        for begin, end in zip(begins, [*begins[1:], None], strict=True):
            last = self._last_bookmark if end is None else self._cut_bookmarks[end][0]
            rows = (self.rows if end is None else end * STEP) - begin * STEP
            ranges[f"[{self._cut_bookmarks[begin][1]}:{last}]"] = rows
            digests.append(_shown(sum(self._step_digests[begin:end])))
        offset = {"bookmark": self._last_bookmark, "ranges": ranges}
        return offset | {"digests": digests} if self._has_digests else offset
