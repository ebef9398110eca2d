"""What is on its way between two instances, and may get lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from server.replication.core import Hello, PackedBatch, ReplicationFrameReader, encode
from tests.replication.basics import MILLISECOND
from tests.replication.batches import received

if TYPE_CHECKING:
    from tests.replication.simulation import World


class Connection:
    """A connection between two instances, with what is on its way."""

    def __init__(self, world: World, one: str, other: str) -> None:
        self.world = world
        self.ends = (one, other)
        self.open = {one: True, other: True}
        self.lives = {one: world.instances[one].life, other: world.instances[other].life}
        self.hello: dict[str, Hello] = {}
        self.readers = {
            one: ReplicationFrameReader(1 << 24),
            other: ReplicationFrameReader(1 << 24),
        }
        self._way: dict[str, list[Any]] = {one: [], other: []}
        self._moving: dict[str, bool] = {one: False, other: False}
        self._is_cut = False

    def is_between(self, one: str, other: str) -> bool:
        return {one, other} == set(self.ends)

    @property
    def is_over(self) -> bool:
        return not any(self.open.values())

    def other(self, name: str) -> str:
        return self.ends[1] if name == self.ends[0] else self.ends[0]

    def send(self, sender: str, frame: Any) -> None:
        if not self.open[sender] or self._is_cut:  # nothing comes behind what has been lost
            return
        if self.world.in_bytes:
            frame = encode(frame, compress=True)
        elif isinstance(frame, PackedBatch):
            frame = received(frame)
        self._way[self.other(sender)].append(frame)
        self.flow()

    def flow(self) -> None:
        for name, waiting in self._way.items():
            if waiting and not self._moving[name]:
                self._moving[name] = True
                self.world.at(self.world.random.randrange(100, 3000), partial(self._arrive, name))

    def _arrive(self, name: str) -> None:
        self._moving[name] = False
        if not self.world.can_reach(self.other(name), name) or self.is_over:
            return
        waiting = self._way[name]
        count = self.world.random.randrange(1, 4)
        arrived, waiting[:count] = waiting[:count], []
        instance = self.world.instances[name]
        for frame in arrived:
            if not self.open[name] or instance.life != self.lives[name] or not instance.is_up:
                break
            if frame == "closed":
                self.close(name, tell=False)
            elif self.world.in_bytes:
                reader = self.readers[name]
                place = self.world.random.randrange(len(frame) + 1)
                for part in (frame[:place], frame[place:]):
                    reader.feed(part)
                    while (whole := reader.next_frame()) is not None:
                        instance.receive(self, whole)
            else:
                instance.receive(self, frame)
        self.flow()

    def close(self, name: str, *, tell: bool = True) -> None:
        """One end is closed."""
        if not self.open[name]:
            return
        self.open[name] = False
        if tell:
            self._way[self.other(name)].append("closed")
            self.flow()
            # Whoever hears nothing any more finds out by itself.
            self.world.at(400 * MILLISECOND, lambda: self.close(self.other(name), tell=False))
        instance = self.world.instances[name]
        if instance.is_up and instance.life == self.lives[name]:
            instance.disconnected(self)
        if self.is_over and self in self.world.connections:
            self.world.connections.remove(self)

    def cut(self) -> None:
        """Some of what is on its way is lost, and all that is sent from now on."""
        self._is_cut = True
        for waiting in self._way.values():
            del waiting[self.world.random.randrange(len(waiting) + 1) :]
        for name in self.ends:
            self.world.at(
                self.world.random.randrange(0, 2000), partial(self.close, name, tell=False)
            )
