"""Who owns a message of a queue that several instances have.

Each instance has all messages of such a queue, and one of them is the owner of a message: only its
consumers get it. The first owner follows from where the message was published, without a word about
it. From then on only the owner hands it on, and records that (`Transferred`); the new one is the
owner when it has come upon that in its own log. So at no moment does anybody own what somebody else
does, whoever fails in between: what was not recorded did not happen, and what was recorded arrives.

Instances hear of that in different orders, and a message may have become two instances' own: its
publisher has sent it to both, or somebody has taken it over from an owner that was only out of
reach (proxied transfer). So a title counts how many times the message has changed hands. Of two
titles the later one is right, of two that are as late the one of the later name; whoever hears of
both, in whatever order, ends up with the same.

That a message was published at two instances each learns when it is sent what it has already, with
another path: so as soon as they have a link. The one of the earlier name leaves it to the other
(`Queue.settle_ownership`). Whoever finds that out records it: the message does not come again, and
an instance further on may have been sent one of the two only.

Source: AMPS User Guide, Queue Message Ownership.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from server.queues.events import Mark

MOST_EARLY: Final = 131_072
"""Titles that are kept for messages that have not come; beyond, the oldest is dropped."""


class Title(NamedTuple):
    """That an instance owns a message; a greater one replaces a lesser one.

    Attributes:
        turn: how many times the message has changed hands.
        owner: the name of the instance.
    """

    turn: int
    owner: str


class Titles:
    """Of the messages of one queue: how many times each has changed hands.

    Attributes:
        early: titles to messages that have not come, by their marks.
    """

    def __init__(self) -> None:
        self.early: OrderedDict[Mark, Title] = OrderedDict()
        self._turns: dict[int, int] = {}

    def turn(self, place: int) -> int:
        """How many times a message has changed hands."""
        return self._turns.get(place, 0)

    def note(self, place: int, turn: int) -> None:
        """Take note of that."""
        if turn:
            self._turns[place] = turn

    def forget(self, place: int) -> None:
        """A message has left the queue."""
        self._turns.pop(place, None)

    def expect(self, mark: Mark, title: Title) -> None:
        """Keep the title to a message until that comes."""
        self.early[mark] = max(title, self.early.pop(mark, title))
        if len(self.early) > MOST_EARLY:
            self.early.popitem(last=False)

    def come(self, mark: Mark, place: int) -> Title | None:
        """A message has come; returns its title if one was kept."""
        title = self.early.pop(mark, None)
        if title is not None:
            self.note(place, title.turn)
        return title

    def drop(self, marks: Iterable[Mark]) -> None:
        """Messages will not come: keep no titles to them."""
        for mark in marks:
            self.early.pop(mark, None)
