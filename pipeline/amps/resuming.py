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
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, Protocol

from client import NOW, Client
from pipeline.amps.connection import session
from pipeline.amps.options import AmpsOptions
from pipeline.amps.replay import replayed
from pipeline.amps.sink import Identity
from pipeline.bodies import Outgoing
from server.wire.bookmarks import client_hash

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
        sent: marks of the messages in the log.
        topic: that of rows that do not say it.
    """

    def __init__(self, sent: Iterable[bytes], topic: str) -> None:
        self._left = Counter(sent)
        self._topic = topic

    def unsent(self, outgoing: Outgoing) -> Sequence[int]:
        """See `Resumption.unsent`."""
        headers = outgoing.headers
        topics = headers.get("topic") or [self._topic] * len(outgoing.bodies)
        columns = [topics, *(headers[name] for name in _COMPARED if name in headers)]
        marks = map(_mark, outgoing.bodies, zip(*columns, strict=True))
        return [place for place, mark in enumerate(marks) if not self._has(mark)]

    def _has(self, mark: bytes) -> bool:
        """Whether the server has such a row, and not only for others that are equal."""
        if not self._left[mark]:
            return False
        self._left[mark] -= 1
        return True


def by_content(
    options: AmpsOptions, identity: Identity, count: int, headers: Iterable[str]
) -> ByContent:
    """Read back what an earlier try of a task has published.

    Args:
        options: the topic.
        identity: of the task.
        count: how many messages the server has.
        headers: what rows bring with them.

    Raises:
        ClientError: the log cannot be read.
    """
    names = [name for name in _COMPARED if name in headers]
    with session(options, "resume", patient=True) as client:
        sent = _published(client, options, identity, names)
        return ByContent((mark for number, mark in sent if number <= count), options.topic or "")


def _published(
    client: Client, options: AmpsOptions, identity: Identity, names: Sequence[str]
) -> Iterable[tuple[int, bytes]]:
    """Numbers of rows, and marks of their messages, as the log has them."""
    publisher, before = str(client_hash(identity.name)), identity.before_first
    command_options = "bookmark_not_found=epoch"  # where the first message has been refused
    if options.topic is not None:
        command_options += ",non_regex_topic"
    topic = _EVERY_TOPIC if options.topic is None else options.topic
    span = f"[{publisher}|{before + 1}|:{NOW}]"
    for messages in replayed(client, options, span, topic=topic, command_options=command_options):
        for message in messages:
            client_part, number, *_ = (message.bookmark or "").split("|")
            if client_part == publisher and int(number) > before:
                values = (message.topic, *(getattr(message.header, name) for name in names))
                yield int(number) - before, _mark(message.body, values)


def _mark(body: bytes, values: Sequence[str | None]) -> bytes:
    head = "\0".join("" if value is None else value for value in values)
    return blake2b(head.encode() + b"\0" + body, digest_size=_MARK_SIZE).digest()
