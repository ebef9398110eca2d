"""The topics of the configuration that have records, and what time does to them.

They stand in the order of the configuration: where a name fits several, the first one has it
(AMPS User Guide, Configuration File Precedence). All changes of an instance have one order; the
sequence numbers are given here.

Two things happen without anybody asking. Records expire: one timer is set for whatever expires
next. And what was written is put on stable storage, at the latest a second after it was written,
also if no publisher waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.sow.records import to_nanoseconds, to_seconds
from server.sow.store import Settled, StoreError
from server.subscriptions.difference import Differ
from server.subscriptions.envelope import Envelope
from server.subscriptions.record_delivery import EXPIRED
from server.topics.cascade import Cascade

if TYPE_CHECKING:
    from config_schema.spec import TopicRef
    from server.base.clock import Clock
    from server.base.log import Log
    from server.expressions.topic_names import TopicSelector
    from server.sow.records import Change
    from server.sow.topic import SowTopic
    from server.topics.keeper import DerivedKeeper, Follower, Keeper
    from server.topics.transaction_log import TransactionLog

_COMMIT_SECONDS: Final = 1.0
_EXPIRED_AT_ONCE: Final = 1000
_LEAST_DELAY: Final = 0.001
"""Seconds; what expires sooner than that after something else is removed together with it."""
_RETRY_SECONDS: Final = 1.0
"""Until expiring is tried again after a store could not write it down."""

Announce = Callable[["str", "list[Change]", Envelope, str], None]
"""Tells subscribers of a message type about changes, and why records are gone."""


class Commit(Protocol):
    """Asks for everything that was written so far to be put on stable storage."""

    def __call__(self, then: Settled | None = None) -> None:
        """Do not wait; `then` is called, on the engine's thread, when it has been tried."""


class Selected(NamedTuple):
    """A topic that a selector chooses.

    Attributes:
        keeper: the topic.
        names: which of its logical topics are meant, None for all.
    """

    keeper: Keeper
    names: Callable[[str], bool] | None


class Stores:
    """The topics with records of one instance.

    Args:
        clock: tells the time.
        log: where failures are said.
        announce: tells subscribers about what expires.
        flush: called after something has been announced.

    Attributes:
        transaction_log: see `TopicTable`.
        cascade: gives turns to the topics that are made from others.
    """

    def __init__(
        self, clock: Clock, log: Log, announce: Announce, flush: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._log = log
        self._announce = announce
        self._flush = flush
        self.transaction_log: TransactionLog | None = None
        self.cascade: Final = Cascade(log)
        self._keepers: list[Keeper] = []
        self._has_containers = False
        self._topics: list[SowTopic] = []
        self._derived: list[DerivedKeeper] = []
        self._commits: dict[SowTopic, Commit] = {}
        self._differs: dict[Keeper, Differ] = {}
        self._followers: dict[Keeper, list[Follower]] = {}
        self._sequence = 0
        self._unwritten: set[SowTopic] = set()
        self._expires_at: float | None = None
        self._cancel_expiry: Callable[[], None] = _nothing

    # ---- which there are

    @property
    def keepers(self) -> Iterable[Keeper]:
        """All of them, in the order of the configuration."""
        return self._keepers

    @property
    def topics(self) -> Iterable[SowTopic]:
        """Those that clients publish to."""
        return self._topics

    def add(self, sow: SowTopic, commit: Commit) -> None:
        """Add a topic that has been recovered; what has expired meanwhile goes at once.

        Args:
            sow: the topic.
            commit: asks for its files to be put on stable storage.
        """
        self._add(sow)
        self._topics.append(sow)
        self._commits[sow] = commit
        if not self.is_journaled(sow):
            self._sequence = max(self._sequence, sow.table.store.last_sequence)
        self._watch_expiry(sow)

    def add_derived(self, topic: DerivedKeeper) -> None:
        """Add a topic that is made from the records of others, which have been added before."""
        self._add(topic)
        self._derived.append(topic)
        for source, follower in topic.inputs:
            self.followers(source).append(follower)

    def begin_derived(self) -> None:
        """Let those topics make their records. Called once all others have been recovered."""
        for topic in self._derived:
            topic.begin()

    def _add(self, keeper: Keeper) -> None:
        self._keepers.append(keeper)
        self._has_containers |= keeper.is_container

    def followers(self, keeper: Keeper) -> list[Follower]:
        """The topics that are made from the records of a topic; the list grows with them."""
        return self._followers.setdefault(keeper, [])

    def find(self, message_type: str, name: str) -> Keeper | None:
        """The topic that has the records of a name; None if none are kept.

        The first of the configuration counts. But the copy of a container has the names that it
        makes, also where the container's pattern covers them: it could not be reached otherwise,
        and its changes would be taken for changes of what it copies.
        """
        for keeper in self._keepers:
            if keeper.type_name == message_type and keeper.keeps(name):
                return self._copy_with(keeper, name) if keeper.is_container else keeper
        return None

    def _copy_with(self, container: Keeper, name: str) -> Keeper:
        """The topic that has the records of a name, of a container and what is made from it."""
        found = container
        for topic in self._derived:
            if topic.keeps(name) and any(source is found for source, _ in topic.inputs):
                found = topic
        return found

    def resource(self, message_type: str, name: str) -> str:
        """What an entitlement module is asked about when somebody wants to use a topic.

        All logical topics of a container have the permissions of the container's name (AMPS User
        Guide, Entitlements for Logical Topics).
        """
        if not self._has_containers:
            return name
        keeper = self.find(message_type, name)
        return name if keeper is None else keeper.name

    def configured(self, ref: TopicRef) -> Keeper | None:
        """The topic that the configuration calls so."""
        for keeper in self._keepers:
            if (keeper.name, keeper.type_name) == (ref.name, ref.message_type):
                return keeper
        return None

    def select(self, message_type: str, selector: TopicSelector) -> list[Selected]:
        """The topics with records that a query or deletion is for, in their order."""
        if not selector.is_regex:
            keeper = self.find(message_type, selector.text)
            chosen = [] if keeper is None else [keeper]
        else:
            chosen = [
                keeper
                for keeper in self._keepers
                if keeper.type_name == message_type
                and (keeper.is_container or selector.matches(keeper.name))
            ]
        return [
            Selected(keeper, selector.matches if keeper.is_container else None) for keeper in chosen
        ]

    def differ(self, keeper: Keeper) -> Differ:
        """What makes deltas of a topic's records."""
        differ = self._differs.get(keeper)
        if differ is None:
            differ = Differ(keeper.table.message_type, keeper.key_fields)
            self._differs[keeper] = differ
        return differ

    # ---- changes

    def is_journaled(self, sow: SowTopic) -> bool:
        """Whether what is published to a topic is in the transaction log."""
        log = self.transaction_log
        return log is not None and log.records(sow.type_name, sow.name)

    def next_sequence(self) -> int:
        """The number of the next change of a topic that is not in the transaction log."""
        self._sequence += 1
        return self._sequence

    def _expiry_sequence(self, sow: SowTopic) -> int:
        """The number of an expiration, which is not in the log: it follows from what is."""
        if self.transaction_log is not None and self.is_journaled(sow):
            return self.transaction_log.last_txid
        return self.next_sequence()

    def touched(self, sow: SowTopic) -> None:
        """Take note that a topic has changed."""
        self._keep(sow)
        if sow.ages:
            self._watch_expiry(sow)

    def _keep(self, sow: SowTopic) -> None:
        """Let a topic be put on stable storage soon."""
        if not self._unwritten:
            self._clock.call_later(_COMMIT_SECONDS, self._commit)
        self._unwritten.add(sow)

    def _commit(self) -> None:
        unwritten, self._unwritten = self._unwritten, set()
        for sow in unwritten:
            self._put_away(sow, _no_matter)

    def _put_away(self, sow: SowTopic, then: Settled) -> None:
        """Have a topic put on stable storage; where that fails, it is tried again soon."""

        def tried(problem: StoreError | None) -> None:
            if problem is not None:
                self._keep(sow)
            then(problem)

        self._commits[sow](tried)

    def when_stored(self, topics: Iterable[SowTopic], then: Settled) -> None:
        """Call back when everything written to some topics so far is on stable storage, or may not
        get there.

        Args:
            topics: which topics.
            then: the call; made at once if there is nothing to wait for.
        """
        all_settled(
            [partial(self._put_away, sow) for sow in dict.fromkeys(topics)],
            then,
        )

    # ---- expiration

    def _watch_expiry(self, sow: SowTopic) -> None:
        moment = sow.next_expiry()
        if moment is not None:
            self._expire_at(to_seconds(moment))

    def _expire_at(self, moment: float) -> None:
        """Look for what has expired at a moment, unless that will be done earlier."""
        if self._expires_at is None or moment < self._expires_at:
            self._cancel_expiry()
            self._expires_at = moment
            delay = max(_LEAST_DELAY, moment - self._clock.now())
            self._cancel_expiry = self._clock.call_later(delay, self._expire)

    def _expire(self) -> None:
        self._expires_at = None
        now = self._clock.now()
        for sow in self._topics:
            moment = sow.next_expiry()
            if moment is None:
                continue
            if to_seconds(moment) <= now and not self._expire_of(sow, now):
                self._expire_at(now + _RETRY_SECONDS)
            else:
                self._watch_expiry(sow)
        self._flush()

    def _expire_of(self, sow: SowTopic, now: float) -> bool:
        """Remove what has expired in a topic; False if that cannot be written down."""
        moment, sequence = to_nanoseconds(now), self._expiry_sequence(sow)
        envelope = Envelope(None, now)
        self._keep(sow)
        try:
            for _ in range(_EXPIRED_AT_ONCE):
                change = sow.expire(moment, sequence)
                if change is None:
                    break
                self._announce(sow.spec.message_type, [change], envelope, EXPIRED)
        except StoreError as error:
            self._log.emit("15-0011", topic=sow.spec.name, reason=error)
            return False
        return True


def all_settled(waits: Sequence[Callable[[Settled], None]], then: Settled) -> None:
    """Call back when several things are settled: with the first problem, if there was any.

    Args:
        waits: each calls back when one thing is settled.
        then: the call; made at once if there is nothing to wait for.
    """
    missing, problem = len(waits), None

    def settled(one: StoreError | None) -> None:
        nonlocal missing, problem
        missing, problem = missing - 1, problem or one
        if not missing:
            then(problem)

    if not waits:
        then(None)
    for wait in waits:
        wait(settled)


def _nothing() -> None:
    """Cancel no call."""


def _no_matter(_problem: StoreError | None) -> None:
    """Do nothing: it has been said, and is tried again."""
