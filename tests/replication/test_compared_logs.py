"""Instances whose logs have been through faults compare what they show: no more, no less is said.

The instances and their troubles are those of the simulation; what they show follows from their
logs, as it does from a journal.
"""

from __future__ import annotations

import pytest

from server.replication.anti_entropy.comparison import RecordComparison
from server.replication.anti_entropy.digests import RecordPortion, RecordState, digest_of
from server.replication.anti_entropy.messages import (
    DigestRequest,
    KeyListContinuation,
    KeyListRequest,
    StateRequest,
    pack,
    unpack,
)
from server.replication.anti_entropy.responder import ComparisonResponder
from tests.replication.basics import MILLISECOND
from tests.replication.checks import messages, run
from tests.replication.instance import Instance
from tests.replication.simulation import Faults, World
from tests.replication.topologies import TOPOLOGIES

TOPIC = ("json", "orders")
KEYS = 5


class Shown:
    """What an instance shows: of each key the last message in its log, unless that deletes it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @property
    def records(self) -> dict[str, tuple[int, int, bytes]]:
        shown: dict[str, tuple[int, int, bytes]] = {}
        for client, sequence, body in messages(self._instance):
            key = str((client ^ sequence) % KEYS)
            if sequence % 7 == 0:
                shown.pop(key, None)
            else:
                shown[key] = client, sequence, body
        return shown

    def read_portion(self, place: int) -> RecordPortion:
        records = sorted(self.records.items())
        return RecordPortion(
            [key for key, _ in records], [body for _, (_, _, body) in records], None
        )

    def record_state(self, identity: str) -> RecordState:
        found = self.records.get(identity)
        if found is None:
            return RecordState()
        client, sequence, body = found
        return RecordState(digest_of(identity, body), client, sequence)

    @property
    def last_txid(self) -> int:
        return self._instance.log.last_txid

    def has_received(self, peer: str, txid: int) -> bool:
        return self._instance.receivers[peer].received_txid >= txid

    def has_message(self, client: int, sequence: int) -> bool:
        if self._instance.known.highest_sequence(client):
            return not self._instance.known.new_positions(client, (sequence,))
        return self._instance.log.began <= sequence <= self.last_txid

    def find(self, message_type: str, topic: str) -> Shown:
        return self


def compare(world: World, one: str, other: str) -> RecordComparison:
    """Let one instance compare what it shows with what another one does."""
    here, there = Shown(world.instances[one]), Shown(world.instances[other])
    comparison = RecordComparison(1, TOPIC, other, here, here, world.now)
    answering = ComparisonResponder(one, there.find, there)
    while not comparison.is_over:
        world.run(lambda: False, 50 * MILLISECOND)
        world.now += 50 * MILLISECOND
        while comparison.run_slice(world.now):
            pass
        for word in comparison.outgoing_messages:
            heard = unpack(pack(word))
            assert isinstance(
                heard, DigestRequest | KeyListRequest | KeyListContinuation | StateRequest
            )
            answering.receive_request(heard)
        comparison.outgoing_messages.clear()
        while answering.run_slice():
            pass
        for answer in answering.outgoing_messages:
            comparison.receive_message(unpack(pack(answer)))
        answering.outgoing_messages.clear()
    return comparison


@pytest.mark.parametrize("topology", ["pair", "async", "hub", "chain", "mesh", "square", "regions"])
def test_exactly_what_differs_is_said_to(topology: str, all_seeds: range) -> None:
    differed = 0
    for seed in all_seeds:
        world = World(seed, TOPOLOGIES[topology], Faults(forget=2), trouble=12)
        run(world)
        links = {(link.source, link.destination) for link in world.topology.links}
        for one, other in sorted(links):
            if one > other:
                continue
            comparison = compare(world, one, other)
            result = comparison.result
            assert result is not None, (seed, comparison.failure)
            ours, theirs = (Shown(world.instances[name]).records for name in (one, other))
            differing = {
                key
                for key in ours.keys() | theirs
                if ours.get(key, (0, 0, b""))[2] != theirs.get(key, (0, 0, b""))[2]
            }
            assert {each.key for each in result.differences} == differing, seed
            assert result.unclear == 0, seed
            differed += bool(differing)
    assert differed or all_seeds.start, "nothing has ever come apart"
