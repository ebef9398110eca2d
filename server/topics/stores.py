"""The topics of the configuration that have records, and what time does to them.

They stand in the order of the configuration: where a name fits several, the first one has it
(AMPS User Guide, Configuration File Precedence). All changes of an instance have one order; the
sequence numbers are given here.

Two things happen without anybody asking. Records expire: one timer is set for whatever expires
next. And what was written is put on stable storage, at the latest a second after it was written,
also if no publisher waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from config_schema.regex import matches
from server.expressions import Kind, parse_identifier
from server.sow.records import to_nanoseconds, to_seconds
from server.sow.store import StoreError
from server.subscriptions.difference import Differ
from server.subscriptions.envelope import Envelope
from server.subscriptions.record_delivery import EXPIRED

if TYPE_CHECKING:
    from server.clock import Clock
    from server.engine import Log
    from server.sow.records import Change
    from server.sow.topic import SowTopic
    from server.topics.names import TopicSelector

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

    def __call__(self, then: Callable[[], None] | None = None) -> None:
        """Do not wait; `then` is called, on the engine's thread, once it is done."""


class Selected(NamedTuple):
    """A topic that a selector chooses.

    Attributes:
        sow: the topic.
        names: which of its logical topics are meant, None for all.
    """

    sow: SowTopic
    names: Callable[[str], bool] | None


class Stores:
    """The topics with records of one instance.

    Args:
        clock: tells the time.
        log: where failures are said.
        announce: tells subscribers about what expires.
        flush: called after something has been announced.
    """

    def __init__(
        self, clock: Clock, log: Log, announce: Announce, flush: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._log = log
        self._announce = announce
        self._flush = flush
        self._topics: list[SowTopic] = []
        self._commits: dict[SowTopic, Commit] = {}
        self._differs: dict[SowTopic, Differ] = {}
        self._sequence = 0
        self._unwritten: set[SowTopic] = set()
        self._expires_at: float | None = None
        self._cancel_expiry: Callable[[], None] = _nothing

    # ---- which there are

    @property
    def topics(self) -> Iterable[SowTopic]:
        """All of them, in the order of the configuration."""
        return self._topics

    def add(self, sow: SowTopic, commit: Commit) -> None:
        """Add a topic that has been recovered; what has expired meanwhile goes at once.

        Args:
            sow: the topic.
            commit: asks for its files to be put on stable storage.
        """
        self._topics.append(sow)
        self._commits[sow] = commit
        self._sequence = max(self._sequence, sow.table.store.last_sequence)
        self._watch_expiry(sow)

    def find(self, message_type: str, name: str) -> SowTopic | None:
        """The topic that has the records of a name; None if none are kept."""
        for sow in self._topics:
            spec = sow.spec
            if spec.message_type != message_type:
                continue
            if spec.name == name if spec.pattern is None else matches(spec.pattern, name):
                return sow
        return None

    def select(self, message_type: str, selector: TopicSelector) -> list[Selected]:
        """The topics with records that a query or deletion is for, in their order."""
        if not selector.is_regex:
            sow = self.find(message_type, selector.text)
            if sow is None:
                return []
            return [Selected(sow, None if sow.spec.pattern is None else selector.matches)]
        return [
            Selected(sow, None if sow.spec.pattern is None else selector.matches)
            for sow in self._topics
            if sow.spec.message_type == message_type
            and (sow.spec.pattern is not None or selector.matches(sow.spec.name))
        ]

    def differ(self, sow: SowTopic) -> Differ:
        """What makes deltas of a topic's records."""
        differ = self._differs.get(sow)
        if differ is None:
            keys = [parse_identifier(text, Kind.PATH).path for text in sow.spec.keys]
            differ = self._differs[sow] = Differ(sow.table.message_type, keys)
        return differ

    # ---- changes

    def next_sequence(self) -> int:
        """The number of the next change."""
        self._sequence += 1
        return self._sequence

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
        for sow in self._unwritten:
            self._commits[sow]()
        self._unwritten.clear()

    def when_stored(self, topics: Iterable[SowTopic], then: Callable[[], None]) -> None:
        """Call back when everything written to some topics so far is on stable storage.

        Args:
            topics: which topics.
            then: the call; made at once if there is nothing to wait for.
        """
        waiting = set(topics)
        if not waiting:
            then()

        def stored(sow: SowTopic) -> None:
            waiting.discard(sow)
            if not waiting:
                then()

        for sow in list(waiting):
            self._commits[sow](partial(stored, sow))

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
        try:
            changes = sow.expire(to_nanoseconds(now), self.next_sequence(), _EXPIRED_AT_ONCE)
        except StoreError as error:
            self._log.emit("15-0011", topic=sow.spec.name, reason=error)
            return False
        self._announce(sow.spec.message_type, changes, Envelope(None, now), EXPIRED)
        self._keep(sow)
        return True


def _nothing() -> None:
    """Cancel no call."""
