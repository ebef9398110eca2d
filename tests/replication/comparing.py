"""Instances that publish, delete and compare, on a network that takes its time; all from one seed.

Only what a comparison goes by is here: records, the order in which messages have come, links that
keep their order, and words that come when they come. What was published where, and when it came,
is written down, so that it can be said whether what a comparison claims was true.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from server.replication.anti_entropy.comparison import ComparisonResult, RecordComparison, prevails
from server.replication.anti_entropy.digests import (
    ComparableRecords,
    RecordPortion,
    RecordState,
    digest_of,
)
from server.replication.anti_entropy.messages import (
    ComparisonMessage,
    ComparisonReport,
    DigestRequest,
    KeyListContinuation,
    KeyListRequest,
    RepublishRequest,
    StateRequest,
    pack,
    unpack,
)
from server.replication.anti_entropy.responder import ComparisonResponder

TOPIC = ("json", "orders")
REPAIRS = 1 << 32
STEP = 200_000


@dataclass(frozen=True)
class Message:
    """What is published: a body for a key, or nothing: then the key is deleted."""

    key: str
    body: bytes | None
    client: int
    sequence: int


@dataclass
class Site:
    """An instance."""

    world: World
    name: str
    log: list[Message] = field(default_factory=list)
    records: dict[str, Message] = field(default_factory=dict)
    come: set[tuple[int, int]] = field(default_factory=set)
    taken: dict[str, int] = field(default_factory=dict)  # by source
    answering: dict[str, ComparisonResponder] = field(default_factory=dict)
    comparison: RecordComparison | None = None

    def publish(self, message: Message, source: str | None = None) -> None:
        if (message.client, message.sequence) in self.come:
            return
        self.come.add((message.client, message.sequence))
        self.log.append(message)
        if message.body is None:
            self.records.pop(message.key, None)
        else:
            self.records[message.key] = message
        for peer in self.world.destinations(self.name):
            if source is None or (self.world.passes_through and peer != source):
                self.world.ways[self.name, peer].append((len(self.log), message))

    # What the core is told.

    def read_portion(self, place: int) -> RecordPortion:
        keys = sorted((key for key in self.records if int(key) >= place), key=int)[:3]
        bodies = [self.records[key].body or b"" for key in keys]
        return RecordPortion(keys, bodies, int(keys[-1]) + 1 if keys else None)

    def record_state(self, key: str) -> RecordState:
        found = self.records.get(key)
        if found is None or found.body is None:
            return RecordState()
        return RecordState(digest_of(key, found.body), found.client, found.sequence)

    @property
    def last_txid(self) -> int:
        return len(self.log)

    def has_received(self, peer: str, txid: int) -> bool:
        return self.taken.get(peer, 0) >= txid

    def has_message(self, client: int, sequence: int) -> bool:
        return (client, sequence) in self.come

    def find(self, message_type: str, topic: str) -> ComparableRecords | None:
        return self if (message_type, topic) == TOPIC else None


class World:
    """All there is."""

    comparison_type: type[RecordComparison] = RecordComparison
    answering_type: type[ComparisonResponder] = ComparisonResponder

    def __init__(self, seed: int, names: str = "AB", *, passes_through: bool = True) -> None:
        self.random = Random(seed)
        self.names = names
        self.passes_through = passes_through
        self.now = 0
        self.sites = {name: Site(self, name) for name in names}
        self.ways: dict[tuple[str, str], deque[tuple[int, Message]]] = {
            (one, other): deque() for one in names for other in names if one != other
        }
        self.words: list[tuple[str, str, bytes]] = []
        self.number = 0
        self.repairs = 0
        self.blocked: set[tuple[str, str]] = set()
        self.claims: list[tuple[str, str, ComparisonResult]] = []
        for one, other in self.ways:
            site = self.sites[one]
            site.answering[other] = self.answering_type(other, site.find, site)

    def destinations(self, name: str) -> Iterator[str]:
        return (other for other in self.names if other != name)

    def publish(self, name: str) -> None:
        key = str(self.random.randrange(12))
        client = self.random.choice((7, 8, 9)) * 10 + self.names.index(name)
        self.number += 1
        body = None if self.random.random() < 0.2 else b"%d" % self.random.randrange(1000)
        self.sites[name].publish(Message(key, body, client, self.number))

    def deliver(self, one: str, other: str) -> None:
        way = self.ways[one, other]
        if not way or (one, other) in self.blocked:
            return
        place, message = way.popleft()
        self.sites[other].publish(message, one)
        # What is not sent over this link is passed over with what follows it.
        self.sites[other].taken[one] = place

    def flush(self, one: str, other: str) -> None:
        """What of the log does not go there is passed over, when all that does has come."""
        if not self.ways[one, other] and (one, other) not in self.blocked:
            self.sites[other].taken[one] = len(self.sites[one].log)

    def drain(self) -> None:
        self.blocked.clear()
        while any(self.ways.values()):
            for way in self.ways:
                self.deliver(*way)

    # Comparisons.

    def compare(self, name: str, other: str) -> RecordComparison:
        site = self.sites[name]
        self.number += 1
        site.comparison = self.comparison_type(self.number, TOPIC, other, site, site, self.now)
        return site.comparison

    def work(self) -> None:
        """Everybody does a bit, and words come."""
        self.now += STEP
        for site in self.sites.values():
            comparison = site.comparison
            if comparison is not None:
                for _ in range(self.random.randrange(4)):
                    comparison.run_slice(self.now)
                self._post(site.name, comparison.peer, comparison.outgoing_messages)
                if comparison.result is not None:
                    self.claims.append((site.name, comparison.peer, comparison.result))
                    self.check(site.name, comparison.peer, comparison.result)
                    site.comparison = None
            for peer, answering in site.answering.items():
                for _ in range(self.random.randrange(4)):
                    answering.run_slice()
                self._post(site.name, peer, answering.outgoing_messages)
        for one, other in self.ways:
            self.flush(one, other)
        while self.words and self.random.random() < 0.7:
            self._read(*self.words.pop(0))

    def _post(self, one: str, other: str, words: list[ComparisonMessage]) -> None:
        self.words += [(one, other, pack(word)) for word in words]
        words.clear()

    def _read(self, one: str, other: str, data: bytes) -> None:
        site, word = self.sites[other], unpack(data)
        if isinstance(word, DigestRequest | KeyListRequest | KeyListContinuation | StateRequest):
            site.answering[one].receive_request(word)
        elif isinstance(word, RepublishRequest):
            for key, digest in zip(word.keys, word.digests, strict=True):
                self.publish_again(other, key, digest)
        elif not isinstance(word, ComparisonReport) and site.comparison is not None:
            site.comparison.receive_message(word)

    def check(self, name: str, peer: str, result: ComparisonResult) -> None:
        """See that what is said was true."""
        ours, theirs = self.sites[name], self.sites[peer]
        for key, one, other in result.differences:
            assert one.digest != other.digest
            for site, state in ((theirs, one), (ours, other)):
                assert not state.digest or (state.client, state.sequence) in site.come, key
            assert _was(ours, key, one), (key, one)
            assert _was(theirs, key, other), (key, other)

    def repair(self, name: str, peer: str, result: ComparisonResult) -> None:
        repairs = frozenset(REPAIRS + self.names.index(one) for one in (name, peer))
        for key, ours, theirs in result.differences:
            if prevails(ours, theirs, repairs):
                self.publish_again(name, key, ours.digest)
            else:
                self._post(name, peer, [RepublishRequest(*TOPIC, [key], [theirs.digest])])

    def publish_again(self, name: str, key: str, digest: int) -> None:
        site = self.sites[name]
        if site.record_state(key).digest == digest != 0:
            self.repairs += 1
            self.number += 1
            client = REPAIRS + self.names.index(name)
            site.publish(Message(key, site.records[key].body, client, self.number))

    def differing(self, one: str, other: str) -> set[str]:
        return {
            key
            for key in map(str, range(12))
            if self.sites[one].record_state(key).digest
            != self.sites[other].record_state(key).digest
        }


def _was(site: Site, key: str, state: RecordState) -> bool:
    """Whether a key has ever been like that."""
    if not state.digest:
        return any(one.key == key and one.body is None for one in site.log) or not any(
            one.key == key for one in site.log
        )
    return any((one.client, one.sequence) == (state.client, state.sequence) for one in site.log)


def until(world: World, is_so: Callable[[], bool], steps: int = 2000) -> None:
    """Let everybody work until something is so."""
    for _ in range(steps):
        if is_so():
            return
        for way in world.ways:
            world.deliver(*way)
        world.work()
    raise AssertionError("it does not come to an end")
