"""What comes from another instance, on its way into one topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from server.journal import MESSAGES, Content, EntryTooLarge, Kind
from server.journal.layout import crc32c, decode_text, pack_extras, unpack_extras
from server.message_types.base import BodyError
from server.replication import Recorded, Same
from server.sow.keys import KeyRefusedError
from server.sow.store import RecordTooLarge
from server.subscriptions.replicated import ReplicatedEnvelope

if TYPE_CHECKING:
    from server.journal import AppendedRun
    from server.replication import Column, Columns

_MICROSECONDS: Final = 1_000_000

AT_ONCE: Final = 1024
"""Entries that are appended in one step, at most."""

_FOR_GOOD: Final = (
    BodyError,
    KeyRefusedError,
    EntryTooLarge,
    RecordTooLarge,
    msgspec.MsgspecError,
)
"""What is wrong with a message itself: nothing that could pass."""


class Entries:
    """What entries say.

    Args:
        run: the entries.

    Attributes:
        run: see above.
        has_extras: whether any of them has.
        bodies: the messages.
    """

    def __init__(self, run: Columns) -> None:
        self.run: Final = run
        self.has_extras: Final = any(name.extras_length for name in run.used().values())
        self.bodies: Final = _without_extras(run) if self.has_extras else run.data

    def bookmark(self, position: int) -> str:
        """The name of a message."""
        return f"{self.run.clients[position]}|{self.run.sequences[position]}|"

    def extras(self, position: int) -> tuple[bytes, bytes]:
        """The correlation id of a message, and the SOW key that its publisher gave."""
        length = self.run.name(position).extras_length if self.has_extras else 0
        return unpack_extras(self.run.data[position][-length:]) if length else (b"", b"")

    def have_extras(self, positions: Sequence[int]) -> bool:
        """Whether any of some messages has extras."""
        return self.has_extras and any(self.run.name(place).extras_length for place in positions)

    def sow_key(self, position: int) -> str | None:
        """The SOW key of a message; None if it was recorded without one."""
        given = self.extras(position)[1]
        if given:
            return decode_text(given)
        number = self.run.sow_keys[position]
        return str(number) if number else None

    def correlation_id(self, position: int) -> str:
        """The correlation id of a message."""
        return decode_text(self.extras(position)[0]) if self.has_extras else ""

    def correlation_ids(self, positions: Sequence[int]) -> Sequence[str]:
        """The correlation ids of some messages; empty if none of them has any."""
        if not self.have_extras(positions):
            return ()
        marks = [self.correlation_id(position) for position in positions]
        return marks if any(marks) else ()

    def envelope(self, position: int, timestamp: int) -> ReplicatedEnvelope:
        """What is known of a message besides its body.

        Args:
            position: of the message.
            timestamp: when it was recorded, in microseconds since 1970.
        """
        envelope = self.common_envelope(position, timestamp, self.correlation_id(position))
        envelope.bookmark = self.bookmark(position)
        return envelope

    def common_envelope(
        self, position: int, timestamp: int, correlation_id: str = ""
    ) -> ReplicatedEnvelope:
        """What is known of all messages with the name of one of them, but for its extras."""
        user = self.run.name(position).origin.auth_id
        return ReplicatedEnvelope(user, timestamp / _MICROSECONDS, correlation_id or None)

    def alike(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Messages in a row that differ in numbers and bodies only, as first and end."""
        run = self.run
        if self.has_extras:
            yield from ((position, position + 1) for position in range(start, stop))
            return
        if all(isinstance(one, Same) for one in (run.clients, run.expirations)) and _all_or_none(
            run.sow_keys
        ):
            yield start, stop
            return
        keys = (
            (run.clients[position], run.expirations[position], run.sow_keys[position] > 0)
            for position in range(start, stop)
        )
        for _, group in groupby(keys):
            end = start + sum(1 for _ in group)
            yield start, end
            start = end


class Arrivals(Entries):
    """Entries of one name and one kind, which are taken in from the front.

    Args:
        run: the entries.
        source: the hash of the instance that they come from.

    Attributes:
        topic: where they were published.
        origin: user and path.
        kind: what all of them stand for; deltas come merged, and are publishes like others.
        position: of the first that has not been dealt with.
        problem: why that one has to wait; None if it has not been tried.
        refused: those that can never be taken in, each with the reason.
        unapplied: those that are in the log and could not be applied, each with the reason.
    """

    def __init__(self, run: Columns, source: int) -> None:
        super().__init__(run)
        self.topic, self.origin, _ = run.name(0)
        self._content: Final = run.content(source)
        kind = run.kinds[0]
        self.kind: Final = Kind.PUBLISH if kind in MESSAGES else Kind(kind)
        self.position = 0
        self.problem: Exception | None = None
        self.refused: list[tuple[int, Exception]] = []
        self.unapplied: list[tuple[int, Exception]] = []
        self._txids = 0, 0

    @property
    def is_waiting(self) -> bool:
        """Whether some are left that can be dealt with now."""
        return self.problem is None and self.position < len(self.run.data)

    @property
    def outcome(self) -> Recorded:
        """What has become of them."""
        return Recorded(self.position, *self._txids)

    # What has become of them.

    def took(self, appended: AppendedRun) -> None:
        """Entries have been appended to the log, from the position on, as far as that came."""
        if appended.txids:
            self._txids = self._txids[0] or appended.txids[0], appended.txids[-1]
            self.position += len(appended.txids)
        if appended.problem is not None:
            self.cannot(appended.problem)

    def cannot(self, problem: Exception) -> None:
        """The next one cannot be taken in: never, or not at the moment."""
        if isinstance(problem, _FOR_GOOD):
            self.refuse(problem)
        else:
            self.problem = problem

    def refuse(self, problem: Exception) -> None:
        """The next one can never be taken in."""
        self.refused.append((self.position, problem))
        self.position += 1

    def refuse_all(self, problem: Exception) -> None:
        """None of them can ever be taken in."""
        self.refused = [(position, problem) for position in range(len(self.run.data))]
        self.position = len(self.run.data)

    # How they are recorded.

    def content(self, most: int = AT_ONCE) -> Content:
        """Those that are next, as the journal appends them."""
        stop = min(self.position + most, len(self.run.data))
        return self._content.part(self.position, stop)

    def with_key(self, number: int, given: bytes) -> Content:
        """The next one as the journal appends it, with another SOW key.

        Args:
            number: the key, if it is a number.
            given: the key, if it is not.
        """
        correlation_id, _ = self.extras(self.position)
        extras = pack_extras(correlation_id, given) if correlation_id or given else b""
        data = self.bodies[self.position] + extras
        return self.content(1)._replace(
            sow_keys=number, extras_length=len(extras), checksums=[crc32c(data)], data=[data]
        )


def _without_extras(run: Columns) -> Sequence[bytes]:
    lengths = [run.names[number].extras_length for number in run.numbers]
    return [one[: len(one) - length] for one, length in zip(run.data, lengths, strict=True)]


def _all_or_none(column: Column) -> bool:
    return isinstance(column, Same) or all(column)
