"""One query command in progress.

The query reads the state at the moment of the command, however long it takes: all its parts, one
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
        take: processes a record; returns whether the record was sent as a result.
    """

    query: OpenQuery
    take: Callable[[Record], bool]


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
        asker: the connection that sent it.
        turns: the scheduler.
        form: the form of results.
        sub_id: the subscription that goes with it, None for a query alone.

    Attributes:
        query_id: its id.
        sub_id: see above.
        place: its place in the client's stream.
        batches: frames records.
        begun: the time of its beginning, by the scheduler's clock.
    """

    def __init__(
        self, asker: Session, turns: Scheduler, form: ResultFormat, sub_id: str | None
    ) -> None:
        self.query_id = form.query_id
        self.sub_id = sub_id
        self.begun = turns.elapsed()
        self.place: Reservation = asker.outbox.reserve()
        self.batches = BatchWriter(
            form.query_id, form.batch_size, form.presentation, self.place.write_results
        )
        self._asker = asker
        self._memory = form.memory
        self._turns = turns
        self._results: Sequence[QueryPart] = ()
        self._leavers: Sequence[QueryPart] = ()
        self._slices: Iterator[None] = iter(())
        self._on_end: Callable[[QueryTotals], Iterable[Header]] = _no_headers
        self._on_failure: Callable[[Exception], None] = _ignore
        self._then: Callable[[], None] | None = None

    def begin(
        self,
        results: Sequence[QueryPart],
        leavers: Sequence[QueryPart],
        on_end: Callable[[QueryTotals], Iterable[Header]],
        on_failure: Callable[[Exception], None],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Begin to send results.

        Args:
            results: the queries, in the order of their results.
            leavers: queries of records to send out-of-focus notices for, after the results.
            on_end: returns the headers to send at the end.
            on_failure: called with the error if the query fails; it has been cancelled by then.
            then: called when they have been sent.
        """
        self._results = results
        self._leavers = leavers
        self._on_end = on_end
        self._on_failure = on_failure
        self._then = then
        self._slices = self._run()
        self._asker.queries.append(self)
        self._asker.keep(self._memory)
        self._turns.start(self)

    @property
    def doing(self) -> tuple[str, str]:
        """See `EngineTask.doing`."""
        return self._asker.client_name, "query"

    def step(self) -> bool:
        """See `EngineTask.step`. A query waits for those that its client sent before it."""
        if self.place.is_open and self._asker.queries[0] is not self:
            return True
        if not self.place.is_open:
            return False
        begun = self._turns.elapsed()
        try:
            return next(self._slices, self) is None
        except Exception as error:  # whatever the error, the client must not wait for ever
            on_failure = self._on_failure
            self.cancel()
            on_failure(error)
            return False
        finally:
            self._asker.query_seconds += self._turns.elapsed() - begun

    def cancel(self) -> None:
        """End without sending more; harmless if the query has ended."""
        if not self.place.is_open:
            return
        for part in (*self._results, *self._leavers):
            part.query.close()
        self.place.close()
        self._asker.queries.remove(self)
        self._asker.keep(-self._memory)
        self._let_go()

    def _run(self) -> Iterator[None]:
        self.send(Header(command="group_begin", query_id=self.query_id))
        sent = 0
        for query, take in self._results:
            for records in query:
                for some in split_into_chunks(records, _BATCH_SIZE):
                    sent += sum(map(take, some))
                    yield
        self.batches.finish()
        self.send(Header(command="group_end", query_id=self.query_id))
        for query, take in self._leavers:
            for records in query:
                for some in split_into_chunks(records, _BATCH_SIZE):
                    for record in some:
                        take(record)
                    yield
        queries = [part.query for part in self._results]
        totals = QueryTotals(
            sum(query.topic_matches for query in queries),
            sum(query.matches for query in queries),
            sent,
        )
        for header in self._on_end(totals):
            self.send(header)
        then = self._then
        self.cancel()
        if then is not None:
            then()

    def _let_go(self) -> None:
        """Release the queries and callbacks, which refer to this run in turn."""
        self._results = self._leavers = ()
        self._slices = iter(())
        self._on_end, self._on_failure, self._then = _no_headers, _ignore, None

    def send(self, header: Header) -> None:
        """Send a message without a body, at the query's place."""
        self.place.write_answer(frame(encode_header(header)))


def _ignore(_error: Exception) -> None:
    """Ignore the error."""


def _no_headers(_totals: QueryTotals) -> Iterable[Header]:
    return ()
