"""The part of this instance in a queue that several instances have.

    the log's origin of a message --> first_owner: who owns it when it enters the queue
    other instances' events -------> hear: what has happened to messages elsewhere
    nothing left to deliver -------> step: ask others for messages, or hand some on

Who owns what, and who asks whom, is decided in server/queues/ (`ownership`, `sharing`). A queue is
shared if this instance replicates it; else, and as a LocalQueue, it is of this instance alone,
which owns all its messages.

Source: AMPS User Guide, Queue Replication Types; Replicated Queues.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from server.journal import EVENTS, JournalUnreadable, Span
from server.queues import Sharing, Transferred, decode_word, encode_word
from server.queues.words import Ask
from server.replication import hops

if TYPE_CHECKING:
    from collections.abc import Callable

    from config_schema.spec import QueueSpec
    from server.queues import Mark, Queue, Within
    from server.topics.queues.recording import Recording
    from server.topics.queues.surroundings import Surroundings


class Membership:
    """What one instance has to do with the others that have a queue.

    Args:
        spec: the queue.
        instance: the name of this instance.
        wake: has the queue delivered, and `step` called, soon.
        surroundings: what the queue needs of the server.

    Attributes:
        domain: tells the queue from others of the same name; see `Within`.
        is_shared: whether other instances have it, too.
        sharing: decides, once there is a queue (`begin`).
    """

    sharing: Sharing

    def __init__(
        self, spec: QueueSpec, instance: str, wake: Callable[[], None], surroundings: Surroundings
    ) -> None:
        is_local, is_group_local = spec.kind == "LocalQueue", spec.kind == "GroupLocalQueue"
        domain = spec.group_local_queue_domain or surroundings.group
        self.domain: Final = domain if is_group_local else ""
        self.is_shared: Final = not is_local and surroundings.is_replicated(
            spec.message_type, spec.name
        )
        self._hears: Final = not is_local
        self._wake: Final = wake
        self._name: Final = spec.name
        self._instance: Final = instance
        self._initial_owner: Final = spec.initial_owner
        self._subject: Final = f"{spec.message_type}/{spec.name}/{self.domain}"
        self._surroundings: Final = surroundings

    def begin(self, core: Queue, recording: Recording) -> None:
        """Take part for a queue.

        Args:
            core: the queue.
            recording: puts into the log what has happened.
        """
        fabric = self._surroundings.fabric
        self._core = core
        self._recording = recording
        self.sharing = Sharing(core, fabric.reach, self._initial_owner)
        if self.is_shared:
            fabric.listen(self._subject, self._listen)

    def first_owner(self, path: str) -> str:
        """Who owns a message when it enters the queue; empty for this instance.

        Args:
            path: the instances that it has been through, as in the log.
        """
        if not self.is_shared or not (path or self._initial_owner):
            return ""
        return self.sharing.initial_owner(hops(path)[0].name if path else self._instance)

    def owner_of_two(self, publishers: tuple[str, str]) -> str:
        """Who owns a message that was published at two instances; the name."""
        return max(self.sharing.initial_owner(one) or self._instance for one in publishers)

    def set_proxied(self, enabled: bool) -> None:
        """Act for owners that cannot be reached, or do not (AMPS User Guide, Proxied Transfer)."""
        self.sharing.proxied = enabled
        self._surroundings.events.emit("1D-0027" if enabled else "1D-0028", queue=self._name)
        self._wake()

    # What other instances have recorded.

    def hear(self, within: Within) -> None:
        """Let happen here what another instance has recorded a moment ago."""
        if self._concerns(within):
            self._core.hear(within.event, self._surroundings.now)

    def replay(self, within: Within, came: int | None) -> None:
        """Let happen again what is in the log.

        Args:
            within: the event.
            came: when it came from another instance; None if it is this one's.
        """
        is_transfer = isinstance(within.event, Transferred)
        if self._concerns(within) if came is not None else self.is_shared or not is_transfer:
            self._core.replay(within.event, came)

    def _concerns(self, within: Within) -> bool:
        if not self._hears or within.domain != self.domain:
            return False
        return self.is_shared or not isinstance(within.event, Transferred)

    def was_recorded(self, mark: Mark) -> bool:
        """Whether a message can come no more; see `Queue`."""
        log = self._surroundings.log
        client, sequence = mark
        if not self.is_shared:
            return log.has_come_to(mark)
        if log.journal.last_sequence(client):
            return log.has_come_to(mark) and not self.is_missing(mark)
        try:  # an identity that counts in txids: those of which instance?
            found = log.journal.replay(Span(sequence - 1, last=sequence), kinds=EVENTS).read(1)
        except JournalUnreadable:
            return False
        return bool(found) and found[0].client == client

    def is_missing(self, mark: Mark) -> bool:
        """Whether a message may come by way of another instance; see `Queue`."""
        return self.is_shared and self._surroundings.fabric.is_missing(mark)

    # Words.

    @property
    def next_moment(self) -> int | None:
        """When `step` is to be called though nothing has happened; None for never."""
        return self.sharing.next_moment if self.is_shared else None

    def step(self) -> bool:
        """Ask, and answer; whether that has changed who owns something: deliver again."""
        if not self.is_shared:
            return False
        said = self.sharing.step(self._surroundings.now)
        has_changed = bool(self._core.ledger.events)
        for to, word in said:
            self._recording.when_stored(
                partial(self._surroundings.fabric.say, to, self._subject, encode_word(word))
            )
        if said or has_changed:
            self._recording.write()
        return has_changed

    def _listen(self, to: str, sender: str, body: bytes) -> None:
        """Another instance says something; what is no word of queues is none for this version."""
        try:
            word = decode_word(body)
        except msgspec.MsgspecError:
            return
        if to == self._instance or (self.sharing.proxied and isinstance(word, Ask)):
            self.sharing.hear(word, sender, self._surroundings.now)
            self._wake()
