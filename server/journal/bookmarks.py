"""What a subscription asks for in its bookmark: from where, and up to where.

    0                            from the beginning (EPOCH)
    0|1|                         what comes from now on (NOW); browsers' libraries write 1|0|
    934814|44321|                after that message
    1|2|,3|4|                    after the earliest of those
    20200604T000000Z             from that moment on
    [20200604T000000:0|1|)       from there to there; [ ] with the end named, ( ) without

A log has a number, which stands in bookmarks for a publisher: they name places in the log by txid.
Other logs do not know them. Whoever brings one has what is before that place, so that no other
start counts beside it.

Source: AMPS User Guide, Replaying Messages with Bookmark Subscription.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol, TypeAlias

NotFound: TypeAlias = Literal["epoch", "now", "fail"]
"""Where to begin if no bookmark of the list is in the log (the option `bookmark_not_found`)."""

_NAMED: Final = re.compile(r"(\d{1,20})\|(\d{1,20})\|?", re.ASCII)
_MOMENT: Final = re.compile(r"(\d{8}T\d{6})(?:\.(\d{1,6}))?Z?", re.ASCII)
_NOW: Final = ((0, 1), (1, 0))
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class BookmarkError(ValueError):
    """A bookmark cannot be read, or is not in the log; the text is a reason for the client."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """The beginning of the log."""


@dataclass(frozen=True, slots=True)
class Now:
    """The end of the log, as it is when the subscription is entered."""


@dataclass(frozen=True, slots=True)
class Named:
    """An entry, by publisher and sequence."""

    client: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, in microseconds since the Unix epoch."""

    timestamp: int


Point: TypeAlias = Epoch | Now | Named | Moment


@dataclass(frozen=True, slots=True)
class BookmarkRequest:
    """What a bookmark asks for.

    Attributes:
        starts: begin at the earliest of these.
        includes_start: whether an entry that is named as a start is delivered.
        ends: stop at the latest of these; empty to go on for ever.
        includes_end: whether an entry that is named as an end is delivered.
    """

    starts: tuple[Point, ...]
    includes_start: bool = False
    ends: tuple[Point, ...] = ()
    includes_end: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether nothing has to be looked for in the log."""
        return all(isinstance(point, Epoch | Now) for point in self.starts + self.ends)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the log, with the names in a bookmark looked up.

    Attributes:
        after: the txid before the first one that counts.
        not_before: entries of earlier moments do not count; microseconds since the Unix epoch.
        last: the last txid that counts; None if that is not known, or there is no end.
        before: entries of this moment and later do not count; None if there is no such limit.
        until: entries that end the span when they come; they are not in the log yet.
        includes_end: whether such an entry counts itself.
        doubt: why the span does not begin at an entry that was named; empty if it does.
    """

    after: int
    not_before: int = 0
    last: int | None = None
    before: int | None = None
    until: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    includes_end: bool = False
    doubt: str = ""


class Log(Protocol):
    """What has to be known about the log to look names up."""

    @property
    def first_txid(self) -> int:
        """Of the first entry there is."""

    def is_place(self, client: int) -> bool:
        """Return whether the first number of a bookmark stands for the log, not a publisher."""

    def find(self, client: int, sequence: int) -> int | None:
        """Return the txid of an entry, None if it is not in the log."""

    def damaged_at(self, client: int, sequence: int) -> int | None:
        """Return the txid of a damaged entry that a name may belong to; None if there is none."""

    def parting(self, client: int, sequence: int) -> int | None:
        """Return the last entry that this log shares with a reader who names a lost entry.

        None if the name is not known to be such a one.
        """

    def first_since(self, timestamp: int) -> int:
        """The txid of the first entry at a moment or later; the next one if there is none."""


def parse_bookmark(text: str) -> BookmarkRequest:
    """Read the bookmark of a subscription.

    Raises:
        BookmarkError: it is none; the text says what was expected.
    """
    text = text.strip()
    if not text.startswith(("[", "(")):
        return BookmarkRequest(_points(text, text))
    if not text.endswith(("]", ")")):
        raise BookmarkError(f"the bookmark range '{text:.200}' must end with ']' or ')'")
    starts, colon, ends = text[1:-1].partition(":")
    if not colon:
        raise BookmarkError(f"the bookmark range '{text:.200}' must have the form [begin:end)")
    return BookmarkRequest(
        _points(starts, text), text[0] == "[", _points(ends, text), text[-1] == "]"
    )


def _points(text: str, whole: str) -> tuple[Point, ...]:
    points = tuple(_point(part.strip(), whole) for part in text.split(",") if part.strip())
    if not points:
        raise BookmarkError(f"the bookmark '{whole:.200}' is empty where a bookmark is expected")
    return points


def _point(text: str, whole: str) -> Point:
    if text == "0":
        return Epoch()
    if match := _NAMED.fullmatch(text):
        client, sequence = int(match[1]), int(match[2])
        return Now() if (client, sequence) in _NOW else Named(client, sequence)
    if match := _MOMENT.fullmatch(text):
        try:
            moment = datetime.strptime(match[1], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            raise BookmarkError(f"'{text}' in the bookmark is not a moment in time") from None
        return Moment((moment - _EPOCH) // _MICROSECOND + int((match[2] or "0").ljust(6, "0")))
    raise BookmarkError(
        f"'{text:.80}' in the bookmark '{whole:.200}' is not a bookmark: expected 0, 0|1|, "
        "a client hash and a sequence as in 934814|44321|, or a time as in 20200604T000000Z"
    )


def resolve(request: BookmarkRequest, log: Log, not_found: NotFound, now: int) -> Span:
    """Find out which part of the log a bookmark stands for. See `resolving`."""
    steps = resolving(request, log, not_found, now)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            span: Span = end.value
            return span


def resolving(
    request: BookmarkRequest, log: Log, not_found: NotFound, now: int
) -> Generator[None, None, Span]:
    """Find out which part of the log a bookmark stands for, in steps: one for each name in it.

    Args:
        request: the bookmark.
        log: where to look names up.
        not_found: what to do when none of the starts is in the log.
        now: the txid of the end of the log.

    Raises:
        BookmarkError: none is, and `not_found` is "fail".
    """
    starts: list[tuple[int, int]] = []
    missing: list[Named] = []
    doubt = ""
    for one in _places(request.starts, log) or request.starts:
        start = _start(one, request, log, now)
        if start is None and isinstance(one, Named):
            txid = log.damaged_at(one.client, one.sequence)
            if txid is None:
                missing.append(one)
            else:
                start = txid - request.includes_start, 0
                doubt = f"the entry of {_text(one)} is damaged: begins at entry {txid}"
        if start is not None:
            starts.append(start)
        yield
    if missing and not starts:
        if not_found == "fail":
            raise BookmarkError(f"bookmark not found: {_text(missing[0])}")
        where = {"now": "end", "epoch": "beginning"}[not_found]
        doubt = f"{_text(missing[0])} is not in the transaction log: begins at its {where}"
    if starts or not_found == "now":
        # Behind where a reader and the log parted, everything is new to the reader.
        partings = [(one, log.parting(one.client, one.sequence)) for one in missing]
        known = [(txid, one) for one, txid in partings if txid is not None]
        if known and not starts:
            doubt = (
                f"{_text(known[0][1])} is of entries that the transaction log has lost: begins "
                "behind those before them"
            )
        starts += [(txid, 0) for txid, _ in known]
    elsewhere = log.first_txid - 1 if not_found == "epoch" else now
    after, not_before = min(starts, default=(elsewhere, 0))
    span = Span(after, not_before, doubt=doubt)
    if not request.ends:
        return span
    return (yield from _with_end(span, request, log, now))


def _text(point: Named) -> str:
    return f"{point.client}|{point.sequence}|"


def _places(starts: Iterable[Point], log: Log) -> list[Named]:
    """Return the places in this very log among the starts, those of lost entries included."""
    places = [one for one in _named(starts) if log.is_place(one.client)]
    return [one for one in places if _is_known(one, log)]


def _is_known(place: Named, log: Log) -> bool:
    client, sequence = place.client, place.sequence
    return log.find(client, sequence) is not None or log.parting(client, sequence) is not None


def _start(point: Point, request: BookmarkRequest, log: Log, now: int) -> tuple[int, int] | None:
    """The txid before the first that counts, and the moment before which nothing does."""
    match point:
        case Epoch():
            return log.first_txid - 1, 0
        case Now():
            return now - request.includes_start, 0
        case Moment(timestamp):
            # A bookmark that is a mere moment, outside of a range, includes it.
            exclusive = bool(request.ends) and not request.includes_start
            return log.first_since(timestamp + exclusive) - 1, timestamp + exclusive
        case Named(client, sequence):
            txid = log.find(client, sequence)
            return None if txid is None else (txid - request.includes_start, 0)


def _with_end(
    span: Span, request: BookmarkRequest, log: Log, now: int
) -> Generator[None, None, Span]:
    excluded = not request.includes_end
    ends: list[int] = []
    for point in request.ends:
        match point:
            case Epoch():
                ends.append(log.first_txid - 1)
            case Now():
                ends.append(now - excluded)
            case Named(client, sequence):
                txid = log.find(client, sequence)
                if txid is not None:
                    ends.append(txid - excluded)
                yield
            case Moment():
                pass
    moments = [one.timestamp + (not excluded) for one in request.ends if isinstance(one, Moment)]
    if moments:
        # The latest end counts: a txid, unless the moment is later than that entry.
        before = max(moments)
        if not ends or log.first_since(before) - 1 >= max(ends):
            return replace(span, before=before)
    if ends:
        return replace(span, last=max(ends))
    until = {(one.client, one.sequence) for one in _named(request.ends)}
    return replace(span, until=frozenset(until), includes_end=request.includes_end)


def _named(points: Iterable[Point]) -> list[Named]:
    return [point for point in points if isinstance(point, Named)]
