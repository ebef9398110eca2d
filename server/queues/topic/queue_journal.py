"""Appends a queue's events to the log, in order, each before any later event.

Events that the log does not accept at the moment are kept, and the append is retried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from server.queues.core import Expired, encode
from server.queues.core.events import shifted
from server.storage.journal import JournalEntryKind, JournalUnavailableError
from server.storage.journal.format.entry import NO_ORIGIN

if TYPE_CHECKING:
    from server.queues.core import Queue, QueueEvent
    from server.queues.topic.browser import QueueBrowser
    from server.queues.topic.context import QueueServices
    from server.queues.topic.dead_letters import DeadLetterPublisher
    from server.storage.journal import TopicHandle

_RETRY_INTERVAL_S: Final = 1.0
"""Delay before a refused append to the log is retried."""

NO_PUBLISHER: Final = (0, 0)
"""No publisher: the events are recorded without a command's sequence number."""


class QueueJournal:
    """Appends the events of one queue to the log.

    Args:
        core: the queue.
        name: its name, under which events are recorded.
        message_type: the name of its message type.
        domain: distinguishes it from other queues of that name; see
            `server.queues.core.DomainQueueEvent`.
        browser: is notified of the events, too.
        dead_letters: notified of recorded expiries, to publish dead letters.
        services: the server's services for the queue.
    """

    def __init__(
        self,
        core: Queue,
        name: str,
        message_type: str,
        domain: str,
        browser: QueueBrowser,
        dead_letters: DeadLetterPublisher,
        services: QueueServices,
    ) -> None:
        self._core: Final = core
        self._name: Final = name
        self._message_type: Final = message_type
        self._domain: Final = domain
        self._browser: Final = browser
        self._dead_letters: Final = dead_letters
        self._services: Final = services
        self._handle: TopicHandle | None = None
        self._unrecorded_events: deque[QueueEvent] = deque()
        self._durable_callbacks: list[Callable[[], None]] = []
        self._is_retry_scheduled = False

    @property
    def is_up_to_date(self) -> bool:
        """True if the log has accepted all events."""
        return not self._unrecorded_events

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call `callback` when all events up to the next `write` are on stable storage."""
        self._durable_callbacks.append(callback)

    def write(self, publisher: tuple[int, int] = NO_PUBLISHER) -> None:
        """Append the pending events to the log.

        Args:
            publisher: the client hash of the client that has caused them, and the sequence number
                of its command, which is recorded with them; 0 for none.
        """
        events = self._core.drain_events()
        self._browser.collect_removals(events)
        self._unrecorded_events += events
        if not self._unrecorded_events and not self._durable_callbacks and not publisher[1]:
            return
        try:
            self._append(*publisher)
        except JournalUnavailableError:
            self._retry_later()
            return
        if publisher[1]:
            self._services.log.refused_sequences.record_arrivals(publisher[0], (publisher[1],))
        durable_callbacks, self._durable_callbacks = self._durable_callbacks, []
        for callback in durable_callbacks:
            self._services.log.when_durable(callback)

    def _append(self, client: int, sequence: int) -> None:
        """Append the pending events; the last one carries the command's sequence number."""
        journal, publish_tracker = self._services.log.journal, self._services.log.publish_tracker
        if self._handle is None:
            self._handle = journal.topic_handle(self._message_type, self._name)
        refused_sequences = self._services.log.refused_sequences
        if sequence and refused_sequences.has_any:
            refused_sequences.record_gaps_below(client, sequence)
        previous_sequence = 0 if publish_tracker is None else journal.last_sequence(client)
        while self._unrecorded_events:
            event = self._unrecorded_events[0]
            number = sequence if len(self._unrecorded_events) == 1 else 0
            event = shifted(event, self._services.wall_clock_lead_us)
            body = encode(event, self._domain)
            txid = journal.append(self._handle, client, number, body, JournalEntryKind.QUEUE_EVENT)
            self._unrecorded_events.popleft()
            if publish_tracker is not None:
                topic = self._handle.topic
                publish_tracker.register_entry(
                    client, previous_sequence, number, body, txid, topic, NO_ORIGIN
                )
            if isinstance(event, Expired):
                self._dead_letters.add_expired(event, txid)
            if number:
                return
        if sequence:
            journal.append(self._handle, client, sequence, b"", JournalEntryKind.NO_OP)
            if publish_tracker is not None:
                publish_tracker.register_sequences(
                    client, previous_sequence, (sequence,), journal.last_txid
                )

    def _retry_later(self) -> None:
        if not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            self._services.clock.call_later(_RETRY_INTERVAL_S, self._retry)

    def _retry(self) -> None:
        self._is_retry_scheduled = False
        self.write()
