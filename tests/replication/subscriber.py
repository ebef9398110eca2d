"""Subscribers that follow a topic, and move to another instance when theirs is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amperage.client.bookmarks import BookmarkTrail
from amperage.wire.bookmarks import NOW, client_hash
from server.storage.journal.read.bookmarks import parse_bookmark, resolve_bookmark
from tests.replication.basics import MILLISECOND
from tests.replication.violation import Violation

if TYPE_CHECKING:
    from tests.replication.instance import Instance
    from tests.replication.memory import Log
    from tests.replication.simulation import World

Message = tuple[int, int]


class Subscriber:
    """Reads what is on stable storage at one of several instances; what comes twice it drops.

    Attributes:
        got: the messages that the application has been given, in their order.
        before: messages published before the subscription, which need not come.
    """

    def __init__(self, world: World, homes: tuple[str, ...], start: str) -> None:
        self.world: Final = world
        self.homes: Final = homes
        self.got: list[Message] = []
        self.before: set[Message] = set()
        self.trail: Final = BookmarkTrail(start)
        self._has_begun = False
        self._home: Instance | None = None
        self._life = 0
        self._position = 0
        world.at(world.random.randrange(50, 1000) * MILLISECOND, self._live)

    @property
    def is_at_end(self) -> bool:
        """Whether it has read all there is where it is."""
        home = self._home
        return home is not None and self._is_there and self._position == home.log.durable

    @property
    def _is_there(self) -> bool:
        return self._home is not None and self._home.is_up and self._home.life == self._life

    def check(self) -> None:
        """See that nothing is missing and nothing has come twice.

        Raises:
            Violation: it is, or has.
        """
        if len(set(self.got)) != len(self.got):
            raise Violation("a subscriber got something twice")
        missing = self.world.published.keys() - self.before - set(self.got)
        if missing:
            raise Violation(f"a subscriber from {self.trail.start} did not get {missing}")

    def _live(self) -> None:
        random = self.world.random
        if not self._is_there or (random.random() < 0.1 and not self.world.is_calm):
            self._move()
        if self._is_there:
            self._read(random.randrange(0, 6))
            if random.random() < 0.3:
                self._be_told_places()
        self.world.at(random.randrange(1, 80) * MILLISECOND, self._live)

    def _move(self) -> None:
        up = [self.world.instances[home] for home in self.homes]
        up = [home for home in up if home.is_up and (self._has_begun or self._has_met(home))]
        if not up:
            return
        home = self._home = self.world.random.choice(up)
        self._life = home.life
        if not self._has_begun:
            self._has_begun = True
            if self.trail.start == NOW:
                self.before = set(self.world.published)
        request = parse_bookmark(self.trail.resume_from)
        span = resolve_bookmark(request, NamedLog(home.log), "now", home.log.last_txid)
        self._position = min(span.after_txid, home.log.durable)
        self._be_told_places()

    def _has_met(self, home: Instance) -> bool:
        """Whether an instance knows the others' logs, without which it cannot tell places there."""
        others = (home.receivers[name] for name in self.homes if name in home.receivers)
        return all(receiver.source_position(0) is not None for receiver in others)

    def _be_told_places(self) -> None:
        """As of an ack: how far this log has been read, and what goes with that elsewhere."""
        home = self._home
        assert home is not None
        places = [(home.log.identity, self._position)]
        places += [
            one for r in home.receivers.values() if (one := r.source_position(self._position))
        ]
        self.trail.persisted(None, [f"{client_hash(log)}|{txid}|" for log, txid in places])

    def _read(self, count: int) -> None:
        home = self._home
        assert home is not None
        log = home.log
        self._position = max(self._position, log.first_txid - 1)
        end = min(self._position + count, log.durable)
        for row in log.rows[self._position + 1 - log.first_txid : end + 1 - log.first_txid]:
            message = row[2], row[3]
            is_new = self.trail.is_new(f"{row[2]}|{row[3]}|")
            if is_new and message in self.world.published and row[10] == 1:
                self.got.append(message)
        self._position = max(self._position, end)


class NamedLog:
    """A log as bookmarks are looked up in it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.number = client_hash(log.identity)

    @property
    def first_txid(self) -> int:
        return self._log.first_txid

    def is_log_position(self, client: int) -> bool:
        return client == self.number

    def last_common_txid(self, client: int, sequence: int) -> int | None:
        return None

    def find_damaged_entry(self, client: int, sequence: int) -> int | None:
        return None

    def find(self, client: int, sequence: int) -> int | None:
        if client == self.number:
            return sequence if sequence <= self._log.durable else None
        for row in self._log.rows[: self._log.durable + 1 - self._log.first_txid]:
            if (row[2], row[3]) == (client, sequence):
                return row[0]
        return None

    def first_since(self, timestamp: int) -> int:
        """Not asked here: nobody subscribes from a moment on."""
        raise NotImplementedError
