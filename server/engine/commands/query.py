"""Begins queries: the common part of sow and of the commands that query and subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from server.engine.commands.acks import NOT_READABLE, acks_among, failure, success, wants
from server.engine.commands.memory_account import memory_of
from server.engine.commands.parsing.topic_selection import entitlement_filter, read_topic
from server.engine.queries.execution import (
    QueryExecution,
    QueryPart,
    QueryTotals,
    ResultFormat,
    TopicQuery,
)
from server.engine.queries.redacted_query import RedactedQuery
from server.expressions.regex.budget import TooCostlyError
from server.storage.sow.query.query import QuerySpec
from server.storage.sow.records import to_nanoseconds
from server.storage.sow.store import RecordStoreError
from server.topics.subscriptions.entitlement_limits import (
    permitted_filter,
    permitted_order,
    permitted_presentation,
)

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.commands.parsing.query_parameters import QueryTerms
    from server.engine.session import Session
    from server.expressions.tree import Expr
    from server.storage.sow.query.query import OpenQuery
    from server.storage.sow.records import Record
    from server.topics.sow_registry import TopicSelection
    from server.topics.subscriptions.delivery.presentation import Presentation


class QueryCommand:
    """A query command that is about to begin.

    Args:
        session: the connection that sent it.
        header: its header.
        terms: its terms.
        presentation: the form in which records are sent.
        sub_id: the subscription that goes with it, None for a query alone.

    Attributes:
        query_id: the id that its results carry.
        presentation: the form in which records are sent.
    """

    def __init__(
        self,
        session: Session,
        header: Header,
        terms: QueryTerms,
        presentation: Presentation,
        sub_id: str | None = None,
    ) -> None:
        self._session = session
        self._header = header
        self._terms = terms
        self.presentation = presentation
        self._sub_id = sub_id
        self._now_ns = to_nanoseconds(session.engine.clock.now())
        self.query_id = header.query_id or header.command_id or sub_id or ""

    def begin(
        self,
        queries: Sequence[TopicQuery],
        should_send: Callable[[Record], bool] | None = None,
        on_sent: Callable[[Record], None] | None = None,
        make_oof_queries: Callable[[QueryExecution], Sequence[QueryPart]] | None = None,
        on_done: Callable[[], None] | None = None,
    ) -> None:
        """Begin to send results.

        Args:
            queries: find the results, in their order.
            should_send: returns whether to send a record that was found; None to send all.
            on_sent: called with every record that is sent.
            make_oof_queries: makes queries of out-of-focus notices to send after the results.
            on_done: called when everything has been sent.
        """
        if self._sub_id is None:
            self._publish_client_status()
        memory = memory_of(self._header)
        result_format = ResultFormat(
            self.query_id, self._terms.batch_size, self.presentation, memory
        )
        execution = QueryExecution(
            self._session, self._session.engine.scheduler, result_format, self._sub_id
        )
        is_in_range = self._make_row_limiter(len(queries))

        def send(presentation: Presentation, record: Record) -> bool:
            if (should_send is not None and not should_send(record)) or not is_in_range():
                return False
            execution.batch_writer.add(record, presentation.select_fields(record.body))
            if on_sent is not None:
                on_sent(record)
            return True

        results = [
            QueryPart(topic_query.query, partial(send, topic_query.presentation))
            for topic_query in queries
        ]
        execution.begin(
            results,
            make_oof_queries(execution) if make_oof_queries is not None else (),
            self._make_acks,
            self._report_failure,
            on_done,
        )

    def _publish_client_status(self) -> None:
        """Publish the query to client status; with a subscription, that one is published."""
        header, session = self._header, self._session
        session.engine.client_status.publish(
            header.command,
            session,
            topic=header.topic,
            filter=header.filter,
            entitlement_filter=entitlement_filter(session, read_topic(session, header, {})),
            options=header.options,
            sub_id=header.sub_id,
            query_id=self.query_id or None,
            correlation_id=header.correlation_id,
        )

    def open_queries(self, topics: Sequence[TopicSelection]) -> list[TopicQuery]:
        """Return queries for the command's records, each of the state at this moment.

        Args:
            topics: the topics to query.
        """
        return [
            self.make_topic_query(selected, self._open_topic_query(selected, len(topics)))
            for selected in topics
        ]

    def make_topic_query(self, selected: TopicSelection, query: OpenQuery) -> TopicQuery:
        """Return a query with the form of its records: the fields that the client may see."""
        message_type = selected.source.table.message_type
        return TopicQuery(
            query, permitted_presentation(selected.permit, self.presentation, message_type)
        )

    def open_matching(
        self, selected: TopicSelection, filter_: Expr | None, keys: tuple[str, ...] | None = None
    ) -> OpenQuery:
        """Return a query for all records that match a filter, of some SOW keys, unordered.

        The records are complete, even if the user may read some of their fields only.
        """
        spec = QuerySpec(
            filter=permitted_filter(selected.permit, filter_),
            keys=keys,
            topic_predicate=selected.name_filter,
            as_of=self._terms.as_of,
        )
        return self._open_query(selected, spec)

    def _open_query(self, selected: TopicSelection, spec: QuerySpec) -> OpenQuery:
        selected.source.table.queries += 1
        query = selected.source.query(spec, self._now_ns)
        return query if selected.permit.filter is None else RedactedQuery(query)

    def _open_topic_query(self, selected: TopicSelection, topics: int) -> OpenQuery:
        terms = self._terms
        top_n, skip_n = terms.top_n, terms.skip_n or 0
        if topics > 1 and top_n is not None:
            top_n, skip_n = top_n + skip_n, 0  # `_make_row_limiter` counts over all topics
        spec = QuerySpec(
            filter=permitted_filter(selected.permit, terms.filter),
            keys=terms.keys,
            order_by=permitted_order(selected.permit, terms.order_by),
            top_n=top_n,
            skip_n=skip_n,
            topic_predicate=selected.name_filter,
            as_of=terms.as_of,
        )
        return self._open_query(selected, spec)

    def _make_row_limiter(self, topics: int) -> Callable[[], bool]:
        """Return a function that counts records over all topics: true between skip_n and top_n."""
        terms = self._terms
        if topics <= 1 or terms.top_n is None:
            return lambda: True
        skip_n = terms.skip_n or 0
        row_range = range(skip_n, skip_n + terms.top_n)
        position = count()
        return lambda: next(position) in row_range

    def _report_failure(self, error: Exception) -> None:
        """End the command after its query failed, and report the failure."""
        session, header = self._session, self._header
        message_id, reason, detail = _cause(error)
        session.engine.log.emit(
            message_id,
            client=session.client_name,
            query_id=self.query_id,
            topic=header.topic,
            error=detail,
        )
        if self._sub_id is not None:
            session.end_subscription(self._sub_id)
        for ack in acks_among(header, ("completed", "stats")) or ("completed",):
            session.send(
                failure(header, ack, reason, detail, query_id=self.query_id, sub_id=self._sub_id)
            )

    def _make_acks(self, totals: QueryTotals) -> Iterable[Header]:
        keys = {"query_id": self.query_id, "sub_id": self._sub_id}
        if wants(self._header, "completed"):
            yield success(self._header, "completed", **keys)
        if wants(self._header, "stats"):
            yield success(self._header, "stats", **keys, **totals._asdict())


def count_tested_records(selected: TopicSelection) -> int | None:
    """Return the number of records that a query tests, None if the client must not know it."""
    return len(selected.source.table) if selected.permit.filter is None else None


def _cause(error: Exception) -> tuple[str, str, str]:
    """Return the log entry's id, the reason and the detail of a query's failure."""
    if isinstance(error, TooCostlyError):
        return "16-0006", "bad filter", str(error)
    if isinstance(error, RecordStoreError):
        return "16-0008", NOT_READABLE, str(error)
    return "16-0007", "query ended", f"the server failed on behalf of it: {error!r}"
