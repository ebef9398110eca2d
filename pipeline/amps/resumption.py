"""Detects the rows of a task that an earlier attempt of it has published.

The server knows how many messages it has from the task. If the rows come in the same order again,
these are the first ones. After a shuffle they need not be, and other rows would be lost. So the
messages are read back from the transaction log, and compared by content. All rows that are not
among them are published. That includes messages that the server refused at the earlier attempt: if
the attempt was killed they were not reported, and the reason may be gone. Nothing is read if there
was no earlier attempt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from typing import Final, Protocol

import numpy as np

from amperage.client import NOW
from amperage.wire.bookmarks import client_hash
from pipeline.amps.connection import session
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed
from pipeline.amps.sink import TaskIdentity
from pipeline.bodies import OutgoingMessages

_COMPARED: Final = ("sow_key", "correlation_id")
"""Headers that distinguish messages, besides topic and body, if rows have them."""
_EVERY_TOPIC: Final = ".*"
_MARK_SIZE: Final = 16
"""Bytes of the hash that represents a message in comparisons."""


class Resumption(Protocol):
    """Selects the rows still to be published."""

    def unsent_indexes(self, outgoing: OutgoingMessages) -> Sequence[int]:
        """Return the indexes of the messages that the server does not have."""


class PositionResumption:
    """Selects rows that come in the same order each time.

    Args:
        count: the number of rows that the server has.
    """

    def __init__(self, count: int) -> None:
        self._rows_to_skip = count

    def unsent_indexes(self, outgoing: OutgoingMessages) -> Sequence[int]:
        """See `Resumption.unsent_indexes`."""
        rows = len(outgoing.bodies)
        skipped = min(self._rows_to_skip, rows)
        self._rows_to_skip -= skipped
        return range(skipped, rows)


class ContentResumption:
    """Selects rows that may come in another order.

    Args:
        published: the rows that the server has.
    """

    def __init__(self, published: PublishedMessages) -> None:
        self._published = published

    def unsent_indexes(self, outgoing: OutgoingMessages) -> Sequence[int]:
        """See `Resumption.unsent_indexes`."""
        headers, published = outgoing.headers, self._published
        topics = headers.get("topic") or [published.topic] * len(outgoing.bodies)
        published.row_topics.update(topics)
        columns = [headers[name] for name in _COMPARED if name in headers]
        values = zip(*columns, strict=True) if columns else repeat(())
        fingerprints = map(_fingerprint, outgoing.bodies, values)
        rows = enumerate(zip(topics, fingerprints, strict=True))
        return [place for place, (topic, row) in rows if not published.match_row(topic, row)]


class PublishedMessages:
    """The messages that an earlier attempt of a task has published, as the log has them.

    The topic in the log differs from the topic of the row if that is a queue: the messages of a
    queue are those of its source topics. The server does not report which of these receives
    messages published to the queue; it is not one that rows name themselves, if there is another.

    Args:
        options: the topic.
        identity: the identity of the task.
        count: the number of messages that the server has.
        headers: the headers of the rows.

    Attributes:
        topic: the topic of rows without one.
        row_topics: the topics of all rows so far.

    Raises:
        ClientError: the log cannot be read.
    """

    def __init__(
        self, options: AmpsOptions, identity: TaskIdentity, count: int, headers: Iterable[str]
    ) -> None:
        self.topic: Final = options.topic or ""
        self.row_topics: Final[set[str]] = set()
        self._options = options
        self._identity = identity
        self._count = count
        self._header_names = [name for name in _COMPARED if name in headers]
        hashes: defaultdict[str, bytearray] = defaultdict(bytearray)
        for where, fingerprint in self._read_hashes(options.topic):
            hashes[where] += fingerprint
        self._unmatched = {where: _HashBag(packed) for where, packed in hashes.items()}
        self._stored_topics: dict[str, frozenset[str]] = {}
        topics = frozenset(hashes)
        if options.topic is None:
            self._stored_topics = {topic: frozenset((topic,)) for topic in topics}
        else:
            self._stored_topics[options.topic] = topics

    def match_row(self, topic: str, fingerprint: bytes) -> bool:
        """Match a row with a message that the server has; return False if no equal one is left.

        Raises:
            ClientError: the log cannot be read.
        """
        went_to = self._stored_topics.get(topic)
        if went_to is None:
            went_to = frozenset(where for where, _ in self._read_hashes(topic))
            self._stored_topics[topic] = went_to
        candidates = went_to - self.row_topics or went_to
        bags = (self._unmatched[where] for where in candidates if where in self._unmatched)
        return any(bag.remove(fingerprint) for bag in bags)

    def _read_hashes(self, topic: str | None) -> Iterator[tuple[str, bytes]]:
        """Yield topic and hash of the messages that were published to a topic."""
        publisher, before = str(client_hash(self._identity.name)), self._identity.base_sequence
        command_options = "bookmark_not_found=epoch"  # the first message may have been refused
        if topic is not None:
            command_options += ",non_regex_topic"
        span = f"[{publisher}|{before + 1}|:{NOW}]"
        with session(self._options, "resume", patient=True) as client:
            for message in chain.from_iterable(
                replayed(
                    client,
                    self._options,
                    span,
                    topic=_EVERY_TOPIC if topic is None else topic,
                    command_options=command_options,
                )
            ):
                client_part, number, *_ = (message.bookmark or "").split("|")
                if client_part == publisher and 0 < int(number) - before <= self._count:
                    values = [getattr(message.header, name) for name in self._header_names]
                    yield message.topic or "", _fingerprint(message.body, values)


class _HashBag:
    """A multiset of hashes, in 20 bytes each: a task may have published many millions of messages.

    Args:
        packed: the hashes, one after the other.
    """

    def __init__(self, packed: bytearray) -> None:
        self._hashes = np.sort(np.frombuffer(packed, f"S{_MARK_SIZE}"))
        self._removed_counts = np.zeros(len(self._hashes), np.uint32)
        """For each first one of equal hashes, how many of them are removed."""

    def remove(self, mark: bytes) -> bool:
        """Remove a hash; return False if there is none left."""
        first = int(np.searchsorted(self._hashes, mark))
        place = first + (int(self._removed_counts[first]) if first < len(self._hashes) else 0)
        # NumPy leaves out NUL bytes at the end of a value.
        if place >= len(self._hashes) or self._hashes[place] != mark.rstrip(b"\0"):
            return False
        self._removed_counts[first] += 1
        return True


def _fingerprint(body: bytes, values: Sequence[str | None]) -> bytes:
    head = "\0".join("" if value is None else value for value in values)
    return blake2b(head.encode() + b"\0" + body, digest_size=_MARK_SIZE).digest()
