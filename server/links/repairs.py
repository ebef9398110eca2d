"""Publishes once more what a repair keeps; see `server/replication/comparison`.

A record is published as it is, unless it has changed since it was compared: whoever has published
to it meanwhile has decided otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.links.compared_records import TopicRecords
from server.sow.store import StoreError

if TYPE_CHECKING:
    from server.base.log import Log
    from server.sow.topic import SowTopic

MOST_WAITING: Final = 20_000
"""Records that wait to be published once more; what is asked for beyond that is left out."""

_AT_ONCE: Final = 16


class Publisher(Protocol):
    """Publishes once more what there is."""

    @property
    def client_hash(self) -> int:
        """The hash of the client name under which it does."""

    def publish_again(self, topic: SowTopic, identity: str) -> bool:
        """Publish a record once more as it is; whether that was done."""


class _Record(NamedTuple):
    """A record to be published once more."""

    topic: SowTopic
    key: str
    digest: int


class Repairs:
    """The records that are to be published once more.

    Args:
        publisher: publishes them.
        log: is told how many.
    """

    def __init__(self, publisher: Publisher, log: Log) -> None:
        self._publisher: Final = publisher
        self._log: Final = log
        self._waiting: deque[_Record] = deque()
        self._done = 0

    @property
    def client_hash(self) -> int:
        """The hash of the client name under which records are published."""
        return self._publisher.client_hash

    def want(self, topic: SowTopic, records: Iterable[tuple[str, int]]) -> None:
        """Have records published once more, soon.

        Args:
            topic: theirs.
            records: their keys, and their digests when they were compared.
        """
        for key, digest in records:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(_Record(topic, key, digest))

    def step(self) -> bool:
        """Publish some; whether there are more."""
        if not self._waiting:
            return False
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            topic, key, digest = self._waiting.popleft()
            try:
                if TopicRecords(topic, _all).state(key).digest == digest:
                    self._done += self._publisher.publish_again(topic, key)
            except StoreError:
                continue  # it stays as it is, and the next comparison says so
        if not self._waiting:
            self._log.emit("1E-0017", count=self._done)
            self._done = 0
        return bool(self._waiting)


def _all(_name: str) -> bool:
    return True
