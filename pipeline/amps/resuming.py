"""Which rows of a task an earlier try of it has published already.

The server says how many messages it has from the task. If the rows come in the same order as then,
these are the first ones. Behind a shuffle they need not be, and others would be lost. So what the
server has is read back from the transaction log, and compared by the messages themselves. Whatever
is not among them is published: what the server refused then, too, since nobody was told of it where
the try was killed, and since the reason may be gone. Nothing is read where there was no earlier
try.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, repeat
from typing import Final, Protocol

from amperage.client import NOW
from amperage.wire.bookmarks import client_hash
from pipeline.amps.connection import session
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed
from pipeline.amps.sink import Identity
from pipeline.bodies import Outgoing

_COMPARED: Final = ("sow_key", "correlation_id")
"""What makes a message another one, besides topic and body, where rows say it."""
_EVERY_TOPIC: Final = ".*"
_MARK_SIZE: Final = 16
"""Bytes that stand for a message while it is compared."""


class Resumption(Protocol):
    """Tells what is still to be published."""

    def unsent(self, outgoing: Outgoing) -> Sequence[int]:
        """The places of those of some messages that the server does not have."""


class ByPosition:
    """For rows that come in the same order each time.

    Args:
        count: how many of them the server has.
    """

    def __init__(self, count: int) -> None:
        self._left = count

    def unsent(self, outgoing: Outgoing) -> Sequence[int]:
        """See `Resumption.unsent`."""
        rows = len(outgoing.bodies)
        skipped = min(self._left, rows)
        self._left -= skipped
        return range(skipped, rows)


class ByContent:
    """For rows that may come in another order.

    Args:
        published: what the server has of the rows.
    """

    def __init__(self, published: Published) -> None:
        self._published = published

    def unsent(self, outgoing: Outgoing) -> Sequence[int]:
        """See `Resumption.unsent`."""
        headers, published = outgoing.headers, self._published
        topics = headers.get("topic") or [published.topic] * len(outgoing.bodies)
        published.named.update(topics)
        columns = [headers[name] for name in _COMPARED if name in headers]
        values = zip(*columns, strict=True) if columns else repeat(())
        marks = map(_mark, outgoing.bodies, values)
        rows = enumerate(zip(topics, marks, strict=True))
        return [place for place, (topic, mark) in rows if not published.take(topic, mark)]


class Published:
    """What an earlier try of a task has published, as the log has it.

    The log says where a message went, which is another topic than the row says where that is the
    name of a queue: its messages are those of the topics that feed it. Which of these takes what is
    published to the queue is not said; it is none that rows name themselves, if there is another.

    Args:
        options: the topic.
        identity: of the task.
        count: how many messages the server has.
        headers: what rows bring with them.

    Attributes:
        topic: that of rows that do not say it.
        named: the topics of all rows so far.

    Raises:
        ClientError: the log cannot be read.
    """

    def __init__(
        self, options: AmpsOptions, identity: Identity, count: int, headers: Iterable[str]
    ) -> None:
        self.topic: Final = options.topic or ""
        self.named: Final[set[str]] = set()
        self._options = options
        self._identity = identity
        self._count = count
        self._names = [name for name in _COMPARED if name in headers]
        found = list(self._read(options.topic))
        self._left = Counter(found)
        self._went_to: dict[str, frozenset[str]] = {}
        topics = frozenset(topic for topic, _ in found)
        if options.topic is None:
            self._went_to = {topic: frozenset((topic,)) for topic in topics}
        else:
            self._went_to[options.topic] = topics

    def take(self, topic: str, mark: bytes) -> bool:
        """Whether the server has a row, and not only for others that are equal.

        Raises:
            ClientError: the log cannot be read.
        """
        went_to = self._went_to.get(topic)
        if went_to is None:
            went_to = frozenset(where for where, _ in self._read(topic))
            self._went_to[topic] = went_to
        for where in went_to - self.named or went_to:
            if self._left[where, mark]:
                self._left[where, mark] -= 1
                return True
        return False

    def _read(self, topic: str | None) -> Iterator[tuple[str, bytes]]:
        """Where messages went, and their marks, of those that were published to a topic."""
        publisher, before = str(client_hash(self._identity.name)), self._identity.before_first
        command_options = "bookmark_not_found=epoch"  # where the first message has been refused
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
                    values = [getattr(message.header, name) for name in self._names]
                    yield message.topic or "", _mark(message.body, values)


def _mark(body: bytes, values: Sequence[str | None]) -> bytes:
    head = "\0".join("" if value is None else value for value in values)
    return blake2b(head.encode() + b"\0" + body, digest_size=_MARK_SIZE).digest()
