"""The cache of headers of publishes without options.

Most publishers send a few headers over and over, or headers that differ only by the values of a
message: its sequence number, correlation id, SOW key, lifetime and command id. A header that
requests nothing but "publish to this topic" (and "acknowledge it") is remembered. Consecutive
frames with such headers form a batch, which goes to the topic in one call. Frames to several topics
form a batch as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

from amperage.wire.frame_batches import HeaderColumns
from server.engine.commands.acks import AckFrames
from server.engine.commands.publish_target import PublishTarget
from server.topics.journaled_topic import JournaledSowTopic, JournaledTopic
from server.topics.sow_topic import SowTopic
from server.topics.topic import Topic
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from amperage.wire.frame_batches import FrameBatch
    from amperage.wire.frame_splitter import HeaderShapes
    from amperage.wire.framing import Frame

_MAX_REMEMBERED: Final = 1024
_MAX_REMEMBERED_LENGTH: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class RequestedAcks:
    """The acks that a header requests; one object for all headers that request the same.

    Attributes:
        types: their types.
        immediate: frames the acks that can be sent at once; None if there are none.
        deferred: frames the acks that wait until messages are on stable storage; None if there
            are none.
        are_conflated: whether these are conflated instead, see `PersistedAcks`.
        has_statistics: whether `DELETION_STATISTICS` follow the immediate ones.
    """

    types: Sequence[str]
    immediate: AckFrames | None
    deferred: AckFrames | None
    are_conflated: bool
    has_statistics: bool

    @property
    def immediate_count(self) -> int:
        """The number of acks of a command that can be sent at once."""
        immediate = 0 if self.immediate is None else len(self.immediate.ack_types)
        return immediate + self.has_statistics


DELETION_STATISTICS: Final = tuple(
    [AckFrames(("stats",), topic_matches=n, matches=n, records_deleted=n) for n in range(2)]
)
"""The statistics of a deletion by body, by the number of records that it has deleted."""


@lru_cache(maxsize=64)
def _requested_acks(types: tuple[str, ...], *, waits: bool, are_conflated: bool) -> RequestedAcks:
    """Return the acks of some types, of which `persisted` waits, and is conflated, or not."""
    late = ("persisted",) if waits and "persisted" in types else ()
    prompt = tuple([one for one in types if one != "stats" and one not in late])
    return RequestedAcks(
        types,
        AckFrames(prompt) if prompt else None,
        AckFrames(late) if late and not are_conflated else None,
        are_conflated,
        "stats" in types,
    )


@dataclass(frozen=True, slots=True, eq=False)
class PublishHeader:
    """The meaning of a remembered header.

    Attributes:
        topic: the target of bodies with this header.
        command: publish, delta_publish or sow_delete.
        acks: the acks that it requests.
        uses_sequences: whether the numbers of messages are used.
        can_interleave: whether messages may be in one batch with those to other topics.
    """

    topic: PublishTarget
    command: str
    acks: RequestedAcks
    uses_sequences: bool
    can_interleave: bool

    @property
    def is_delta(self) -> bool:
        """True if messages have only the fields that change."""
        return self.command == "delta_publish"

    @property
    def is_deletion(self) -> bool:
        """True if bodies name records to delete."""
        return self.command == "sow_delete"


def make_publish_header(
    topic: PublishTarget,
    command: str,
    acks: tuple[str, ...],
    *,
    is_numbered: bool,
    has_log: bool,
) -> PublishHeader:
    """Return the meaning of a header.

    Args:
        topic: the target of bodies with it.
        command: its command.
        acks: the types of ack that it requests.
        is_numbered: whether it has a sequence number.
        has_log: whether there is a transaction log, where `persisted` acks are conflated.
    """
    conflates = "persisted" in acks and has_log
    can_interleave = isinstance(topic, JournaledTopic | JournaledSowTopic) or type(topic) in (
        SowTopic,
        Topic,
    )
    has_use = bool(acks) or (has_log if can_interleave else topic.is_journaled)
    return PublishHeader(
        topic,
        command,
        _requested_acks(acks, waits=topic.is_persistent or conflates, are_conflated=conflates),
        is_numbered and has_use,
        can_interleave,
    )


PublishBatchCallback = Callable[
    [PublishHeader, Sequence[int] | None, Sequence[bytes], HeaderColumns], None
]
"""Publishes a batch: the meaning of its first header; the key of each header, if they differ; the
messages; and their values, of which the sequence numbers are left out if they are not used."""
ExecuteCallback = Callable[[bytes, bytes], bool]
"""Executes a header and its body; returns whether more may be executed now."""


class PublishHeaderCache:
    """The headers that one session remembers.

    Args:
        shapes: gets the shapes of headers; the key of a header is its index there.

    Attributes:
        headers: the meaning of each header, by its key.
        topics: the target of each, likewise; another list when that of a key has changed.
        only_deliver: whether all these only deliver messages, without a log and records.
        has_one_kind_of_acks: whether all headers request the same acks.
        has_deletions: whether any header is one of deletions.
    """

    def __init__(self, shapes: HeaderShapes) -> None:
        self._shapes = shapes
        self.headers: list[PublishHeader] = []
        self.topics: list[PublishTarget] = []
        self.only_deliver = self.has_one_kind_of_acks = True
        self.has_deletions = False

    def add_header(
        self, header: bytes, values: Sequence[str | int | None], publish: PublishHeader
    ) -> None:
        """Remember a header, so that frames with it are messages to a topic.

        Args:
            header: the header's bytes.
            values: its values as they have been decoded, in the order of `HeaderColumns`; later
                headers may have others.
            publish: the meaning of the header.
        """
        if len(header) > _MAX_REMEMBERED_LENGTH:
            return
        _, *found = self._shapes.find(header)
        if found != [b"" if value is None else text_to_bytes(str(value)) for value in values]:
            return  # written otherwise than values are found
        if len(self.headers) >= _MAX_REMEMBERED:
            self.clear()
        key = self._shapes.add(header)
        if key < 0:
            return
        self.only_deliver = self.only_deliver and type(publish.topic) is Topic
        self.has_deletions = self.has_deletions or publish.is_deletion
        if self.headers and publish.acks is not self.headers[0].acks:
            self.has_one_kind_of_acks = False
        if key == len(self.headers):
            self.headers.append(publish)
            self.topics.append(publish.topic)
        else:
            self.headers[key] = publish
            self.topics = [*self.topics]
            self.topics[key] = publish.topic

    def clear(self) -> None:
        """Forget all headers."""
        self._shapes.clear()
        self.headers, self.topics = [], []
        self.only_deliver = self.has_one_kind_of_acks = True
        self.has_deletions = False

    def dispatch_frames(
        self, frames: Iterable[Frame], publish: PublishBatchCallback, execute: ExecuteCallback
    ) -> int:
        """Publish frames with remembered headers in batches, and execute all others in their place.

        Args:
            frames: the frames received, in their order.
            publish: publishes batches.
            execute: executes frames with unknown headers; headers that it remembers apply to
                the frames behind.

        Returns:
            The number of frames executed: not all if `execute` has returned False.
        """
        find, headers, done = self._shapes.find, self.headers, 0
        last: PublishHeader | None = None
        last_key = -1
        keys: list[int] = []  # of each header, if they differ
        bodies: list[bytes] = []
        rows: list[tuple[int, bytes, bytes, bytes, bytes, bytes]] = []
        for header, body in frames:
            row = find(header)
            key = row[0]
            known = headers[key] if key >= 0 else None
            if known is not last:
                if last is not None:
                    if known is not None and _can_interleave(last, known):
                        keys = keys or [last_key] * len(bodies)
                    else:
                        publish(last, keys or None, bodies, _columns(last, rows))
                        done += len(bodies)
                        keys, bodies, rows = [], [], []
                last, last_key = known, key
            if known is None:
                done += 1
                if not execute(header, body):
                    return done
                headers = self.headers  # it may have cleared the cache
                continue
            if keys:
                keys.append(key)
            bodies.append(body)
            rows.append(row)
        if last is not None:
            publish(last, keys or None, bodies, _columns(last, rows))
            done += len(bodies)
        return done

    def dispatch_batch(
        self, batch: FrameBatch, publish: PublishBatchCallback, execute: ExecuteCallback
    ) -> int:
        """Publish frames that the reader has collected. See `dispatch_frames`."""
        if batch.generation != self._shapes.generation:  # forgotten since the frames were split
            return self.dispatch_frames(batch.frames(), publish, execute)
        headers, bodies = self.headers, batch.bodies
        for start, end, keys in _interleaved_ranges(headers, batch.keys, len(bodies)):
            header = headers[batch.keys if isinstance(batch.keys, int) else batch.keys[start]]
            publish(header, keys, bodies[start:end], _used_values(header, batch.values, start, end))
        return len(bodies)


def _used_values(
    header: PublishHeader, values: HeaderColumns, start: int, end: int
) -> HeaderColumns:
    """Return the values of consecutive messages, without sequence numbers that are not used."""
    part = values.part(start, end)
    return part if header.uses_sequences else part._replace(sequences=())


def _columns(
    header: PublishHeader, rows: Sequence[tuple[int, bytes, bytes, bytes, bytes, bytes]]
) -> HeaderColumns:
    """Return the values of messages that have been found one by one."""
    _, *columns = zip(*rows, strict=True)
    return _used_values(header, HeaderColumns(*columns), 0, len(rows))


def _can_interleave(first: PublishHeader, second: PublishHeader) -> bool:
    """Return whether messages with two headers may be in one batch."""
    return _batch_kind(first) > 0 and _batch_kind(first) == _batch_kind(second)


def _batch_kind(header: PublishHeader) -> int:
    """Return a number that headers share if their messages may be in one batch; 0 if none may."""
    return 1 + header.uses_sequences if header.can_interleave else 0


def _interleaved_ranges(
    headers: Sequence[PublishHeader], keys: int | Sequence[int], count: int
) -> Iterable[tuple[int, int, Sequence[int] | None]]:
    """Yield the ranges of messages that may be in one batch: begin, end, keys if they differ."""
    if isinstance(keys, int):
        yield 0, count, None
        return
    kinds = {_batch_kind(headers[key]) for key in set(keys)}
    if len(kinds) == 1 and 0 not in kinds:
        yield 0, count, keys
        return
    start = 0
    for _, rows in groupby(keys, lambda key: _batch_kind(headers[key]) or -key):
        some = [*rows]
        yield start, start + len(some), some if some.count(some[0]) < len(some) else None
        start += len(some)
