"""One query command under way.

The query sees the state at the moment of the command, however long it takes: all its parts, one for
each topic, are opened at once. Its results stand in the client's stream where the command stood;
what else is sent to the client waits behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from amperage.wire.framing import frame
from amperage.wire.header import Header, encode_header
from server.base.slices import portions
from server.queries.batches import BatchWriter
from server.subscriptions.outbox import Outbox, Reservation

if TYPE_CHECKING:
    from server.base.slices import Slices
    from server.sow.query import OpenQuery
    from server.sow.records import Record
    from server.subscriptions.presentation import Presentation

_AT_ONCE: Final = 200
"""Results that are framed in a slice."""


class Totals(NamedTuple):
    """What a query came to.

    Attributes:
        topic_matches: the records that were tested.
        matches: those that match.
        records_returned: those that were sent.
    """

    topic_matches: int
    matches: int
    records_returned: int


class Asked(NamedTuple):
    """A query of one topic, and the form in which its records are wanted."""

    query: OpenQuery
    presentation: Presentation


class Part(NamedTuple):
    """A query of one topic.

    Attributes:
        query: the query.
        take: what is done with a record that it finds; whether that was to send it as a result.
    """

    query: OpenQuery
    take: Callable[[Record], bool]


class ResultForm(NamedTuple):
    """How results are sent.

    Attributes:
        query_id: the id that all frames carry.
        batch_size: how many records a frame holds at most.
        presentation: the form in which records are wanted.
        memory: bytes that are kept for the query; see server/commands/memory.py.
    """

    query_id: str
    batch_size: int
    presentation: Presentation
    memory: int


class Asker(Protocol):
    """The connection that asked.

    Attributes:
        queries: its queries that have not sent all their results yet.
        query_seconds: time spent on its queries.
    """

    queries: list[QueryRun]
    query_seconds: float

    @property
    def client_name(self) -> str:
        """The name of its client."""

    @property
    def outbox(self) -> Outbox:
        """What is on its way to it."""

    def keep(self, size: int) -> None:
        """Take note of memory that a query takes from now on, or no more."""


class QueryRun:
    """A query command from its beginning to the end of its results.

    Args:
        asker: the connection that asked.
        turns: shares out the time.
        form: how results are sent.
        sub_id: the subscription that goes with it, None for a query alone.

    Attributes:
        query_id: its id.
        sub_id: see above.
        place: its place in the client's stream.
        batches: frames records.
        begun: when it began, by the clock of the turns.
    """

    def __init__(self, asker: Asker, turns: Slices, form: ResultForm, sub_id: str | None) -> None:
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
        self._results: Sequence[Part] = ()
        self._leavers: Sequence[Part] = ()
        self._slices: Iterator[None] = iter(())
        self._on_end: Callable[[Totals], Iterable[Header]] = _no_headers
        self._on_failure: Callable[[Exception], None] = _ignore
        self._then: Callable[[], None] | None = None

    def begin(
        self,
        results: Sequence[Part],
        leavers: Sequence[Part],
        on_end: Callable[[Totals], Iterable[Header]],
        on_failure: Callable[[Exception], None],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Begin to send results.

        Args:
            results: the queries, in the order of their results.
            leavers: queries of what the client is to hear of after the results.
            on_end: gives the headers to be sent in the end.
            on_failure: told why the query cannot be carried out to its end; it has been cancelled.
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
        """See `Sliced.doing`."""
        return self._asker.client_name, "query"

    def step(self) -> bool:
        """See `Sliced.step`. A query waits for those that its client sent before it."""
        if self.place.is_open and self._asker.queries[0] is not self:
            return True
        if not self.place.is_open:
            return False
        begun = self._turns.elapsed()
        try:
            return next(self._slices, self) is None
        except Exception as error:  # whatever it is, the client must not wait for ever
            on_failure = self._on_failure
            self.cancel()
            on_failure(error)
            return False
        finally:
            self._asker.query_seconds += self._turns.elapsed() - begun

    def cancel(self) -> None:
        """End without sending more; harmless if it has ended."""
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
                for some in portions(records, _AT_ONCE):
                    sent += sum(map(take, some))
                    yield
        self.batches.finish()
        self.send(Header(command="group_end", query_id=self.query_id))
        for query, take in self._leavers:
            for records in query:
                for some in portions(records, _AT_ONCE):
                    for record in some:
                        take(record)
                    yield
        queries = [part.query for part in self._results]
        totals = Totals(
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
        """Keep nothing of what was asked for and found, which knows of this run in turn."""
        self._results = self._leavers = ()
        self._slices = iter(())
        self._on_end, self._on_failure, self._then = _no_headers, _ignore, None

    def send(self, header: Header) -> None:
        """Send a message that is nothing but a header, at the query's place."""
        self.place.write_answer(frame(encode_header(header)))


def _ignore(_error: Exception) -> None:
    """Nobody is told."""


def _no_headers(_totals: Totals) -> Iterable[Header]:
    return ()
