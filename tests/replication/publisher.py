"""Publishers that follow their messages to wherever these are safe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amperage.wire.bookmarks import client_hash
from tests.replication.basics import LOCAL, MILLISECOND, ORDERS

if TYPE_CHECKING:
    from server.storage.journal import JournalTopic
    from server.storage.journal.sequence_gaps import SequenceRanges
    from tests.replication.instance import Instance
    from tests.replication.simulation import World


class Publisher:
    """Publishes, keeps messages until they are acknowledged, and moves when it must."""

    def __init__(self, world: World, name: str, homes: tuple[str, ...], messages: int) -> None:
        self.world = world
        self.name = name
        self.client = client_hash(name)
        self.homes = homes
        self.left = messages
        self.sequence = 0
        self.store: dict[int, bytes] = {}
        self.home: Instance | None = None
        self.life = 0
        self.told: SequenceRanges = ()
        world.at(world.random.randrange(0, 100) * MILLISECOND, self._live)

    @property
    def is_done(self) -> bool:
        return not self.left and not self.store

    def _live(self) -> None:
        random = self.world.random
        if (
            self.home is None
            or not self.home.is_up
            or self.home.life != self.life
            or (random.random() < 0.05 and not self.world.is_calm)
        ):
            self._move()
        home = self.home  # what is on its way arrives, even if the connection ends meanwhile
        if home is not None and self.left and home.is_up:
            for _ in range(min(random.randrange(1, 4), self.left)):
                self._publish(home)
        if not self.is_done:
            self.world.at(random.randrange(1, 150) * MILLISECOND, self._live)

    def _move(self) -> None:
        up = [home for home in self.homes if self.world.instances[home].is_up]
        self.home = None
        if up:
            home = self.home = self.world.instances[self.world.random.choice(up)]
            self.life = home.life
            self._log_on(home)
            for sequence, body in list(self.store.items()):
                self._send(home, sequence, body)

    def _log_on(self, home: Instance) -> None:
        """Hear what failed, and how far all is stored."""
        told, settled = home.log_on(self)
        for first, last in told:
            for number in range(first, last + 1):
                self.store.pop(number, None)
        self._let_go(home, settled)
        self.told = told

    def _send(
        self, home: Instance, sequence: int, body: bytes, topic: JournalTopic = ORDERS
    ) -> None:
        if self.told:
            home.heard(self.client, self.told)
            self.told = ()
        home.publish(self, self.client, sequence, body, topic)

    def _publish(self, home: Instance) -> None:
        random = self.world.random
        kind = random.random()
        if kind < 0.15:
            self._send(home, 0, b"without a number")
        elif kind < 0.2:
            self._send(home, 0, b"of one instance", LOCAL)
        else:
            self.left -= 1
            self.sequence += random.choice((1, 1, 1, 5))
            body = f"{self.name} {self.sequence}".encode()
            self.store[self.sequence] = body
            self.world.published[self.client, self.sequence] = body
            self._send(home, self.sequence, body)

    def acknowledged(self, instance: Instance, sequence: int) -> None:
        if instance is self.home and instance.life == self.life:
            self._let_go(instance, sequence)

    def _let_go(self, instance: Instance, sequence: int) -> None:
        """Everything up to a number is stored."""
        for number in [one for one in self.store if one <= sequence]:
            del self.store[number]
            self.world.acked[self.client, number] = instance.name, self.world.now

    def failed(self, instance: Instance, sequence: int) -> None:
        """A message is refused; or the connection ends before that is heard."""
        if instance is self.home and instance.life == self.life:
            if self.world.random.random() < 0.5:
                self.store.pop(sequence, None)
            else:
                self.home = None
