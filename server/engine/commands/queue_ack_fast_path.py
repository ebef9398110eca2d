"""Fast path for acknowledgements without options: the headers that a session remembers.

Most consumers acknowledge with one header over and over, except for the bookmarks. A header that
requests nothing but "these messages of this queue are done" is remembered as the bytes around the
list, and the next one needs no decoding.

Consumers of several queues acknowledge with a command for each, in turns. So the acknowledgements
of consecutive commands are collected, and each queue executes its own in one step: with one entry
in the log, and one notification of consumers. They are executed before any other command of the
connection, before it ends, and before the next delivery slice (`DeliveryScheduler`), which could
end leases. Nothing answers them, so nothing shows the delay.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from amperage.wire.header import Header
from server.engine.commands.failure_acks import refuse
from server.queues.core import AckOutcome, parse_bookmarks
from server.queues.topic.acknowledgement import AckTerms
from server.security.permissions import Permission
from server.storage.journal import JournalUnavailableError
from server.util.limits import MAX_BOOKMARKS

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.queues.core import PublisherSequence
    from server.queues.topic.queue_topic import QueueTopic

_BOOKMARKS_KEY: Final = b'"bm":"'
_MAX_CACHED_HEADERS: Final = 64
_MAX_CACHED_HEADER_SIZE: Final = 512
_MAX_COLLECTED: Final = 512
"""Bookmarks that are collected: executing them takes less than a time slice."""


class AckHeaderCache:
    """The headers of acknowledgements that one session remembers.

    Args:
        session: the connection.
        is_filtered: whether transport filters see every command, so that nothing may be remembered.

    Attributes:
        was_last: whether the last command, plain publishes aside, had a remembered header.
    """

    def __init__(self, session: Session, *, is_filtered: bool) -> None:
        self._session = session
        self._is_filtered = is_filtered
        self.was_last = False
        self._queues_by_header: dict[tuple[bytes, bytes], QueueTopic] = {}
        # the bookmarks of each command that has not been executed yet, by queue
        self._collected: dict[QueueTopic, list[list[PublisherSequence]]] = {}
        self._collected_count = 0

    def add_header(self, exact_header: bytes, header: Header) -> None:
        """Remember a header, if it is a plain one, for all that differ by their bookmarks only.

        Args:
            exact_header: the bytes of a header.
            header: the decoded header.
        """
        queue = self._find_queue(header)
        if queue is None or self._is_filtered or self._session.engine.log.enabled("12-0002"):
            return
        prefix, bookmarks, suffix = _split_at_bookmarks(exact_header)
        if bookmarks != header.bookmark or len(prefix) + len(suffix) > _MAX_CACHED_HEADER_SIZE:
            return
        if len(self._queues_by_header) >= _MAX_CACHED_HEADERS:
            self._queues_by_header.clear()
        self._queues_by_header[prefix, suffix] = queue

    def _find_queue(self, header: Header) -> QueueTopic | None:
        """Return the queue of a plain acknowledgement; None for any other command."""
        queues, topic = self._session.engine.topics.queues, header.topic
        if (
            queues is None
            or topic is None
            or header != Header("sow_delete", topic=topic, bookmark=header.bookmark)
        ):
            return None
        return queues.find(self._session.message_type, topic)

    def try_acknowledge(self, header: bytes, body: bytes) -> bool:
        """Collect the messages that a header lists; return whether it is a remembered one.

        If it is not, acknowledge those collected so far. Any error is left to the regular path,
        which decodes the header and reports it.
        """
        self.was_last = self._collect(header, body)
        if self._collected and not self.was_last:
            self.acknowledge_collected()
        return self.was_last

    def _collect(self, header: bytes, body: bytes) -> bool:
        """Collect the messages that a header lists; return False for any other command."""
        if not self._queues_by_header or body:
            return False
        prefix, bookmarks, suffix = _split_at_bookmarks(header)
        queue, session = self._queues_by_header.get((prefix, suffix)), self._session
        if queue is None or queue.is_closed:
            return False
        permit = session.get_permit(Permission.READ_TOPIC, queue.name)
        if not permit.is_allowed or permit.filter is not None:
            return False
        sequences, malformed = parse_bookmarks(bookmarks)
        if malformed or len(sequences) > MAX_BOOKMARKS:
            return False
        session.command = "sow_delete"
        if self._collected_count + len(sequences) > _MAX_COLLECTED:
            self.acknowledge_collected()
        if not self._collected:
            queue.ack_handler.defer(self.acknowledge_collected)
        self._collected.setdefault(queue, []).append(sequences)
        self._collected_count += len(sequences)
        return True

    def acknowledge_collected(self) -> None:
        """Acknowledge the messages that have been collected, those of each queue in one step."""
        if not self._collected:
            return
        session = self._session
        terms = AckTerms(AckOutcome.DONE, session.number, (session.client_hash, 0))
        collected, self._collected, self._collected_count = self._collected, {}, 0
        for queue, commands in collected.items():
            sequences = commands[0] if len(commands) == 1 else [*chain.from_iterable(commands)]
            try:
                queue.ack_handler.acknowledge(sequences, terms)
            except JournalUnavailableError as error:
                for _ in commands:
                    header = Header("sow_delete", topic=queue.name)
                    refuse(session, header, "not stored", str(error))


def _split_at_bookmarks(header: bytes) -> tuple[bytes, str, bytes]:
    """Return the bytes before the bookmarks in a header, the bookmarks, and the bytes behind.

    A header with another list between the same two parts means the same in all other respects, and
    is well-formed if this one is. Without a list, the bookmarks are empty.
    """
    prefix, _, rest = header.rpartition(_BOOKMARKS_KEY)
    bookmarks, _, suffix = rest.partition(b'"')
    return prefix, bookmarks.decode("latin-1"), suffix
