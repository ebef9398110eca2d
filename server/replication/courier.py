"""Words between instances, over links and other instances, and which of these can be reached.

What is recorded travels with the log. Beside it, instances have things to say to one another that
are worth nothing later, such as a question: words. One that is for an instance at the other end of
a link goes there, and others to all that it has not been to; each passes it on once. Words can get
lost, and come at most once.

An instance can be reached if there is a link to it, or something has been heard from it lately. Of
others it is found out when somebody wants to know, by a word that is answered.

For whoever integrates it: `connected` and `disconnected` when a link with an instance stands and is
gone; frames of `Word` to `receive`; about once a second `step`. What these and `send` return goes
over the links named, or is dropped where there is no room.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import Final, NamedTuple

from server.replication.frames import Word

HEARD_LATELY: Final = 5_000_000
"""Microseconds for which an instance that something was heard from counts as reachable."""
PATIENCE: Final = 2_000_000
"""Microseconds after which an instance that does not answer counts as out of reach."""

MOST_HOPS: Final = 32
MOST_IN_WORD: Final = 1 << 16
"""Bytes of a word."""

_MOST_REMEMBERED: Final = 16_384
_MOST_WANTED: Final = 1_024
_ASK_AGAIN: Final = 1_000_000
_WHETHER_THERE: Final = ""
"""The subject of words by which it is found out who is there."""
_ARE_YOU, _I_AM = b"?", b"!"


class Parcel(NamedTuple):
    """A word, and where to send it next.

    Attributes:
        peer: the name of the instance at the other end of a link.
        word: the frame.
    """

    peer: str
    word: Word


class Received(NamedTuple):
    """What has come of a word that came.

    Attributes:
        parcels: what to send.
        sender: who says it; empty if there is nothing to be told.
    """

    parcels: list[Parcel]
    sender: str = ""


class Courier:
    """Sends, passes on and receives the words of one instance.

    Args:
        instance: its name.
        first: the number of its first word: one that the numbers of an earlier run have not come
            to.

    Attributes:
        neighbours: the names of the instances that there are links with.
    """

    def __init__(self, instance: str, first: int = 1) -> None:
        self.neighbours: set[str] = set()
        self._instance: Final = instance
        self._numbers = count(first)
        self._known: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._heard: OrderedDict[str, int] = OrderedDict()
        self._wanted: dict[str, int] = {}  # since when it is being found out whether it is there
        self._asked: dict[str, int] = {}

    def connected(self, peer: str) -> None:
        """A link with an instance stands."""
        self.neighbours.add(peer)

    def disconnected(self, peer: str) -> None:
        """It is gone."""
        self.neighbours.discard(peer)
        self._heard.pop(peer, None)

    # Words.

    def send(self, to: str, subject: str, body: bytes) -> list[Parcel]:
        """Say something to an instance.

        Args:
            to: its name.
            subject: what it is about, not empty.
            body: what to say, no more than `MOST_IN_WORD` bytes.
        """
        return self._forward(Word(to, [self._instance], next(self._numbers), subject, body))

    def receive(self, word: Word, peer: str, now: int) -> Received:
        """A word has come over a link.

        Args:
            word: the frame.
            peer: the name of the instance at the other end of that link.
            now: microseconds since the Unix epoch.

        Returns:
            What to send on. The sender is told of a word that is for this instance, or for one that
            cannot be reached: somebody may act for that.
        """
        path = word.path
        if (
            not 0 < len(path) <= MOST_HOPS
            or path[-1] != peer
            or self._instance in path
            or len(word.body) > MOST_IN_WORD
            or not self._is_new(path[0], word.number)
        ):
            return Received([])
        self._hear_from(path[0], now)
        if word.to != self._instance:
            onward = Word(word.to, [*path, self._instance], word.number, word.subject, word.body)
            is_lost = word.subject and self.reach(word.to, now) is False
            return Received(self._forward(onward), path[0] if is_lost else "")
        if word.subject != _WHETHER_THERE:
            return Received([], path[0])
        if word.body == _ARE_YOU:
            return Received(self._whether_there(path[0], _I_AM))
        return Received([])

    def _is_new(self, sender: str, number: int) -> bool:
        key = sender, number
        if key in self._known:
            return False
        self._known[key] = None
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return True

    def _forward(self, word: Word) -> list[Parcel]:
        if word.to in self.neighbours:
            return [Parcel(word.to, word)]
        return [Parcel(peer, word) for peer in sorted(self.neighbours.difference(word.path))]

    # Who can be reached.

    def reach(self, name: str, now: int) -> bool | None:
        """Whether an instance can be reached; None if that is not known.

        Args:
            name: its name.
            now: microseconds since the Unix epoch.
        """
        if name in self.neighbours or now - self._heard.get(name, -HEARD_LATELY) < HEARD_LATELY:
            return True
        if not self.neighbours:
            return False
        since = self._wanted.setdefault(name, now)
        if len(self._wanted) > _MOST_WANTED:
            self._forget_wanted(next(iter(self._wanted)))
        return False if now - since >= PATIENCE else None

    def step(self, now: int) -> list[Parcel]:
        """Ask those who are looked for whether they are there."""
        parcels: list[Parcel] = []
        for name in self._wanted:
            if now - self._asked.get(name, -_ASK_AGAIN) >= _ASK_AGAIN:
                self._asked[name] = now
                parcels += self._whether_there(name, _ARE_YOU)
        return parcels

    def _hear_from(self, name: str, now: int) -> None:
        self._forget_wanted(name)
        self._heard.pop(name, None)
        self._heard[name] = now
        if len(self._heard) > _MOST_WANTED:
            self._heard.popitem(last=False)

    def _forget_wanted(self, name: str) -> None:
        self._wanted.pop(name, None)
        self._asked.pop(name, None)

    def _whether_there(self, to: str, body: bytes) -> list[Parcel]:
        return self._forward(Word(to, [self._instance], next(self._numbers), "", body))
