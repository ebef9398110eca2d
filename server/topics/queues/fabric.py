"""The other instances, as queues see them.

Queues are made before it is known what there is of replication: until `use` has been called, and in
an instance that does not replicate, nobody is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from server.queues import Mark
    from server.replication import Known


class Post(Protocol):
    """Takes words to other instances. See `Links`."""

    def say(self, to: str, subject: str, body: bytes) -> None:
        """Say something to an instance; it may get lost."""

    def reach(self, name: str) -> bool | None:
        """Whether an instance can be reached; None if that is not known."""


Hear = Callable[[str, str, bytes], None]
"""Told whom a word is for, who says it, and what it says."""


class Fabric:
    """What queues that are shared need of replication."""

    def __init__(self) -> None:
        self._post: Post | None = None
        self._known: Known | None = None
        self._listeners: Final[dict[str, Hear]] = {}

    def use(self, post: Post, known: Known) -> None:
        """Let queues speak to other instances from now on.

        Args:
            post: takes words there.
            known: what this instance has of each publisher.
        """
        self._post = post
        self._known = known

    def listen(self, subject: str, hear: Hear) -> None:
        """Have words about something told to somebody."""
        self._listeners[subject] = hear

    def receive(self, to: str, sender: str, subject: str, body: bytes) -> None:
        """A word has come, for this instance, or for one that cannot be reached."""
        hear = self._listeners.get(subject)
        if hear is not None:
            hear(to, sender, body)

    def say(self, to: str, subject: str, body: bytes) -> None:
        """See `Post.say`."""
        if self._post is not None:
            self._post.say(to, subject, body)

    def reach(self, name: str) -> bool | None:
        """See `Post.reach`."""
        return False if self._post is None else self._post.reach(name)

    def is_missing(self, mark: Mark) -> bool:
        """Whether a message has not come although later ones of its publisher have."""
        if self._known is None:
            return False
        client, sequence = mark
        highest = self._known.highest(client)
        return sequence <= highest and len(self._known.unknown(client, (sequence,))) > 0
