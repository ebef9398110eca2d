"""One query command in progress.

The query reads the state at the moment of the command, even if it takes long: all its parts, one
for each topic, are opened at once. Its results have the command's place in the client's stream;
all other frames for the client wait behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from amperage.wire.framing import frame
from amperage.wire.header import Header, encode_header
from server.engine.queries.result_batches import BatchWriter
from server.topics.subscriptions.delivery.outbox import Reservation
from server.util.task import split_into_chunks

if TYPE_CHECKING:
    from server.engine.scheduler import Scheduler
    from server.engine.session import Session
    from server.storage.sow.query.query import OpenQuery
    from server.storage.sow.records import Record
    from server.topics.subscriptions.delivery.presentation import Presentation

_BATCH_SIZE: Final = 200
"""Results that are framed in a time slice."""


class QueryTotals(NamedTuple):
    """The counts of a complete query.

    Attributes:
        topic_matches: the records that were tested.
        matches: those that match.
        records_returned: those that were sent.
    """

    topic_matches: int
    matches: int
    records_returned: int


class TopicQuery(NamedTuple):
    """A query of one topic, and the form in which its records are sent."""

    query: OpenQuery
    presentation: Presentation


class QueryPart(NamedTuple):
    """A query of one topic, with a callback for its records.

    Attributes:
        query: the query.
        process_record: processes a record; returns whether the record was sent as a result.
    """

    query: OpenQuery
    process_record: Callable[[Record], bool]


class ResultFormat(NamedTuple):
    """The form of results.

    Attributes:
        query_id: the id that all frames carry.
        batch_size: the maximum number of records in a frame.
        presentation: the form in which records are sent.
        memory: bytes charged for the query; see server/engine/commands/memory_account.py.
    """

    query_id: str
    batch_size: int
    presentation: Presentation
    memory: int


class QueryExecution:
    """Executes a query command, from its beginning to the end of its results.

    Args:
        session: the connection that sent it.
        scheduler: the scheduler.
        result_format: the form of results.
        sub_id: the subscription that goes with it, None for a query alone.

    Attributes:
        query_id: its id.
        sub_id: the subscription that goes with it, None for a query alone.
        reservation: its place in the client's stream.
        batch_writer: frames records.
        started_at: the time of its beginning, by the scheduler's clock.
    """

    def __init__(
        self,
        session: Session,
        scheduler: Scheduler,
        result_format: ResultFormat,
        sub_id: str | None,
    ) -> None:
        self.query_id = result_format.query_id
        self.sub_id = sub_id
        self.started_at = scheduler.elapsed()
        self.reservation: Reservation = session.outbox.reserve()
        self.batch_writer = BatchWriter(
            result_format.query_id,
            result_format.batch_size,
            result_format.presentation,
            self.reservation.write_results,
        )
        self._session = session
        self._memory = result_format.memory
        self._scheduler = scheduler
        self._result_parts: Sequence[QueryPart] = ()
        self._oof_parts: Sequence[QueryPart] = ()
        self._slices: Iterator[None] = iter(())
        self._on_end: Callable[[QueryTotals], Iterable[Header]] = _no_headers
        self._on_failure: Callable[[Exception], None] = _ignore
        self._on_sent: Callable[[], None] | None = None

    def begin(
        self,
        result_parts: Sequence[QueryPart],
        oof_parts: Sequence[QueryPart],
        on_end: Callable[[QueryTotals], Iterable[Header]],
        on_failure: Callable[[Exception], None],
        on_sent: Callable[[], None] | None = None,
    ) -> None:
        """Begin to send results.

        Args:
            result_parts: the queries, in the order of their results.
            oof_parts: queries of records to send out-of-focus notices for, after the results.
            on_end: returns the headers to send at the end.
            on_failure: called with the error if the query fails; it has been cancelled by then.
            on_sent: called when they have been sent.
        """
        self._result_parts = result_parts
        self._oof_parts = oof_parts
        self._on_end = on_end
        self._on_failure = on_failure
        self._on_sent = on_sent
        self._slices = self._run()
        self._session.queries.append(self)
        self._session.charge_command_memory(self._memory)
        self._scheduler.start_task(self)

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`."""
        return self._session.client_name, "query"

    def step(self) -> bool:
        """See `EngineTask.step`. A query waits for those that its client sent before it."""
        if self.reservation.is_open and self._session.queries[0] is not self:
            return True
        if not self.reservation.is_open:
            return False
        started_at = self._scheduler.elapsed()
        try:
            return next(self._slices, self) is None
        except Exception as error:  # any error: the client must not wait without end
            on_failure = self._on_failure
            self.cancel()
            on_failure(error)
            return False
        finally:
            self._session.query_seconds += self._scheduler.elapsed() - started_at

    def cancel(self) -> None:
        """End without sending more; harmless if the query has ended."""
        if not self.reservation.is_open:
            return
        for part in (*self._result_parts, *self._oof_parts):
            part.query.close()
        self.reservation.close()
        self._session.queries.remove(self)
        self._session.charge_command_memory(-self._memory)
        self._release_references()

    def _run(self) -> Iterator[None]:
        self.send_header(Header(command="group_begin", query_id=self.query_id))
        sent = 0
        for query, process_record in self._result_parts:
            for records in query:
                for chunk in split_into_chunks(records, _BATCH_SIZE):
                    sent += sum(map(process_record, chunk))
                    yield
        self.batch_writer.flush()
        self.send_header(Header(command="group_end", query_id=self.query_id))
        for query, process_record in self._oof_parts:
            for records in query:
                for chunk in split_into_chunks(records, _BATCH_SIZE):
                    for record in chunk:
                        process_record(record)
                    yield
        queries = [part.query for part in self._result_parts]
        totals = QueryTotals(
            sum(query.topic_matches for query in queries),
            sum(query.matches for query in queries),
            sent,
        )
        for header in self._on_end(totals):
            self.send_header(header)
        on_sent = self._on_sent
        self.cancel()
        if on_sent is not None:
            on_sent()

    def _release_references(self) -> None:
        """Release the queries and callbacks, which in turn refer to this query."""
        self._result_parts = self._oof_parts = ()
        self._slices = iter(())
        self._on_end, self._on_failure, self._on_sent = _no_headers, _ignore, None

    def send_header(self, header: Header) -> None:
        """Send a message without a body, at the query's place."""
        self.reservation.write_ack(frame(encode_header(header)))


def _ignore(_error: Exception) -> None:
    """Ignore the error."""


def _no_headers(_totals: QueryTotals) -> Iterable[Header]:
    return ()
