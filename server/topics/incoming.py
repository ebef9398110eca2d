"""Takes in what other instances send: appended as it is, then applied and delivered.

    Receiver (server/replication/) --a run of new entries--> Incoming.record
        by kind --> the topic --> the journal --> records, subscribers, views, queues

An entry whose topic is not recorded here, or that can never be recorded, is left out, and that is
said in the log. One that cannot be recorded at the moment (a disk is full) waits, and so does what
comes after it from the same instance: an instance that acknowledged what it has not got would make
others forget it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from server.journal import Kind
from server.replication import Recorded
from server.replication.columns import different
from server.topics.arrivals import Arrivals, by_kind
from server.topics.incoming_log import IncomingLog
from server.topics.journaled import JournaledStoredTopic, JournaledTopic
from server.topics.queue_topic import QueueTopic
from server.wire.bookmarks import client_hash

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.journal import Topic
    from server.replication import Columns, Peer
    from server.topics.table import TopicTable
    from server.topics.transaction_log import TransactionLog

_MOST_SECONDS: Final = (1 << 32) - 1


class NotRecordedError(Exception):
    """A topic's messages are not recorded by this instance; the text says why."""


class _Taker(Protocol):
    """A topic that takes in what has come."""

    def take_in(self, arrivals: Arrivals) -> None:
        """Deal with some entries, from the front."""

    def published_twice(
        self, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """Take note of messages that were published at two instances."""


class Incoming:
    """Records what comes from other instances; see `server.replication.Recorder`.

    Args:
        topics: where it goes.
        message_types: the names of the message types that there are.
        transaction_log: where it is recorded.
        clock: the time, and timers.
        log: is told of what cannot be recorded.
    """

    def __init__(
        self,
        topics: TopicTable,
        message_types: Collection[str],
        transaction_log: TransactionLog,
        clock: Clock,
        log: Log,
    ) -> None:
        self._topics: Final = topics
        self._message_types: Final = message_types
        self._transaction_log: Final = transaction_log
        self._log: Final = IncomingLog(clock, log)

    @property
    def last_txid(self) -> int:
        """See `Recorder.last_txid`."""
        return self._transaction_log.last_txid

    def highest(self) -> Mapping[int, int]:
        """See `Recorder.highest`."""
        table = self._transaction_log.journal.sequences
        return {client: sequence for client, (sequence, _) in table.items()}

    def record(self, run: Columns, source: Peer) -> Recorded:
        """See `Recorder.record`. Outboxes are to be flushed by whoever calls this.

        Raises nothing: what is wrong with an entry concerns that entry.
        """
        if max(different(run.expirations)) > _MOST_SECONDS:
            lifetimes = [min(lifetime, _MOST_SECONDS) for lifetime in run.expirations]
            run = run._replace(expirations=lifetimes)
        done = first = last = 0
        for part in by_kind(run):
            arrivals = Arrivals(part, client_hash(source.name))
            self._take_in(arrivals)
            self._log.say(arrivals, source.name)
            taken, first_of_part, last_of_part = arrivals.outcome
            done, first, last = done + taken, first or first_of_part, last_of_part or last
            if arrivals.problem is not None:
                break
        return Recorded(done, first, last)

    def published_twice(
        self, topic: Topic, marks: Sequence[tuple[int, int]], publishers: tuple[str, str]
    ) -> None:
        """See `Recorder.published_twice`: queues have to know, what is not recorded matters not."""
        with suppress(NotRecordedError):
            self._find(topic, Kind.PUBLISH).published_twice(marks, publishers)

    def _take_in(self, arrivals: Arrivals) -> None:
        try:
            topic = self._find(arrivals.run.topic, arrivals.kind)
        except NotRecordedError as error:
            arrivals.refuse_all(error)
            return
        while arrivals.is_waiting:
            position = arrivals.position
            try:
                topic.take_in(arrivals)
            except Exception as error:  # whatever it is, what comes after it must not pay
                if arrivals.position == position:
                    arrivals.refuse(error)
                else:
                    arrivals.unapplied.append((arrivals.position - 1, error))

    def _find(self, named: Topic, kind: Kind) -> _Taker:
        """The topic that entries of a kind are for.

        Raises:
            NotRecordedError: they are not recorded here.
        """
        message_type, name = named.message_type, named.name
        if message_type not in self._message_types:
            raise NotRecordedError(f"this instance has no message type {message_type}")
        topic = self._topics.find(message_type, name)
        if isinstance(topic, QueueTopic) and kind is not Kind.QUEUE_EVENT:
            found = self._topics.behind_queue(message_type, name, name)
        else:
            found = topic
        if isinstance(found, JournaledTopic | JournaledStoredTopic | QueueTopic):
            return found
        raise NotRecordedError("the topic is not in the TransactionLog of this instance")
