"""The instance that answers when another one compares its records with those here.

It executes requests in time slices, one after the other; a new survey cancels earlier requests. See
`comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from server.replication.anti_entropy.comparison import MOST_LISTED, Surroundings, has_come
from server.replication.anti_entropy.digests import (
    Records,
    State,
    digest_of,
    portions,
    survey,
    within,
)
from server.replication.anti_entropy.messages import (
    MOST_BYTES,
    List,
    Listed,
    Look,
    Looked,
    More,
    Survey,
    Surveyed,
    Unable,
    Word,
)

_KEYS_IN_WORD: Final = 256
_KEY_BYTES: Final = 16


class Answering:
    """Answers the requests of one other instance.

    Args:
        peer: its name.
        find: returns the records of a topic by message type and name; None if they are not
            compared.
        surroundings: the other state of this instance.

    Attributes:
        outgoing: messages to be sent.
        topic: the topic that is being compared, message type and name; None if none is.
    """

    def __init__(
        self,
        peer: str,
        find: Callable[[str, str], Records | None],
        surroundings: Surroundings,
    ) -> None:
        self.outgoing: list[Word] = []
        self.topic: tuple[str, str] | None = None
        self._peer = peer
        self._find = find
        self._surroundings = surroundings
        self._number = 0
        self._records: Records | None = None
        self._work: Iterator[None] | None = None
        self._list: list[tuple[str, int]] = []
        self._look: Look | None = None

    def take(self, word: Survey | List | More | Look) -> None:
        """Accept a request of the other instance."""
        if isinstance(word, Survey):
            self._survey(word)
            return
        if word.number != self._number or self._records is None:
            self._say(Unable(word.number, "nothing is being compared"))
        elif isinstance(word, List):
            self._work = self._make_list(self._records, frozenset(word.ranges))
        elif isinstance(word, More):
            self._send_listed()
        else:
            self._look = word

    def stop(self) -> None:
        """Drop all requests, because the other instance is gone."""
        self._number, self._records, self._work, self._look = 0, None, None, None
        self.topic = None
        self._list.clear()
        self.outgoing.clear()

    @property
    def is_waiting(self) -> bool:
        """True while it waits for entries in flight."""
        return self._look is not None

    def step(self) -> bool:
        """Do a time slice of work; return whether there is more to do at once."""
        if self._work is not None:
            if next(self._work, self) is self:
                self._work = None
            return self._work is not None
        look, records = self._look, self._records
        if look is None or records is None:
            return False
        if self._surroundings.has_taken(self._peer, look.upto):
            self._answer(look, records)
            self._look = None
        return False

    def _survey(self, word: Survey) -> None:
        self.stop()
        records = self._find(word.message_type, word.topic)
        if records is None:
            reason = f"the records of {word.topic} ({word.message_type}) are not replicated"
            self._say(Unable(word.number, reason))
            return
        self._number, self._records = word.number, records
        self.topic = word.message_type, word.topic
        self._work = self._make_survey(records)

    def _make_survey(self, records: Records) -> Iterator[None]:
        for made in survey(records):
            if made is not None:
                self._say(Surveyed(self._number, made.records, made.pack()))
            yield

    def _make_list(self, records: Records, ranges: frozenset[int]) -> Iterator[None]:
        self._list.clear()
        for portion in portions(records):
            for key, body in within(portion, ranges):
                if len(self._list) < MOST_LISTED:
                    self._list.append((key, digest_of(key, body)))
            yield
        self._list.reverse()
        self._send_listed()

    def _send_listed(self) -> None:
        """Send as much of the list as fits into a message."""
        keys: list[str] = []
        digests: list[int] = []
        size = 0
        while self._list and len(keys) < _KEYS_IN_WORD and size < MOST_BYTES:
            length = 4 * len(self._list[-1][0]) + _KEY_BYTES
            if keys and size + length > MOST_BYTES:
                break
            key, digest = self._list.pop()
            keys.append(key)
            digests.append(digest)
            size += length
        self._say(Listed(self._number, keys, digests, not self._list))

    def _answer(self, look: Look, records: Records) -> None:
        surroundings = self._surroundings
        states: list[State] = [records.state(key) for key in look.keys]
        had = [has_come(state, surroundings) for state in look.states]
        self._say(Looked(look.number, look.look, surroundings.last_txid, states, had))

    def _say(self, word: Word) -> None:
        self.outgoing.append(word)
