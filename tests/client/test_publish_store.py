"""The publish store against a model: a list of pairs."""

from __future__ import annotations

import json

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from amperage.client import PublishStore

ROOM = 2000


class StoreMachine(RuleBasedStateMachine):
    """Publishes, acknowledges, refuses and logs on in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store = PublishStore(ROOM)
        self.model: list[tuple[int, bytes]] = []
        self.last = 0

    @rule(body=st.binary(max_size=300))
    def add(self, body: bytes) -> None:
        message = self.store.add(b'{"c":"p"', body)
        self.last += 1
        self.model.append((self.last, body))
        assert json.loads(message.header) == {"c": "p", "s": self.last}

    @rule(sequence=st.integers(0, 60))
    def persisted(self, sequence: int) -> None:
        self.store.persisted(sequence)
        self.model = [it for it in self.model if it[0] > sequence]

    @rule(sequence=st.integers(0, 60))
    def refused(self, sequence: int) -> None:
        message = self.store.refused(sequence)
        expected = next((it for it in self.model if it[0] == sequence), None)
        assert (None if message is None else (message.sequence, message.body)) == expected
        self.model = [it for it in self.model if it[0] != sequence]

    @rule(sequence=st.integers(0, 60), more=st.integers(0, 9))
    def logged_on(self, sequence: int, more: int) -> None:
        self.store.logged_on(sequence, sequence + more)
        self.model = [it for it in self.model if it[0] > sequence]
        self.last = max(self.last, sequence + more)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert [(it.sequence, it.body) for it in self.store] == self.model
        assert (len(self.store), self.store.last_sequence) == (len(self.model), self.last)
        for sequence in range(0, 60, 7):
            assert self.store.holds_up_to(sequence) == any(it[0] <= sequence for it in self.model)

    @invariant()
    def is_full_by_what_it_holds(self) -> None:
        bodies = sum(len(body) for _, body in self.model)
        if not self.model:
            assert not self.store.is_full
        if bodies >= ROOM:
            assert self.store.is_full


TestPublishStore = StoreMachine.TestCase
