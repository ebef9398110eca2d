"""What a change of a record costs a paginated subscription, whatever the number of records.

    python -m benchmarks.pages

A change gives a record another value in the field that results are sorted by, and so another
position. It is followed by a result set and its pages, which write what they have to say into the
outbox of nobody; beside that, what the same change costs a plain list that is sorted again (which
is quick, since it is almost sorted), without any page. Everything runs in this process on one core,
and is counted by processor time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from benchmarks.tables import print_table
from server.expressions import parse_order_by
from server.expressions.topic_names import select_topics
from server.message_types.registry import MessageTypes
from server.storage.sow.records import Record
from server.topics.subscriptions.delivery.delta import DeltaEncoder
from server.topics.subscriptions.delivery.record_delivery import MATCH, RecordMessage
from server.topics.subscriptions.paging.page import Page
from server.topics.subscriptions.paging.result_set import ResultSet
from server.topics.subscriptions.subscription import PageTerms, Subscription, SubscriptionTerms

COUNTS = (1_000, 10_000, 100_000)
PAGES = (1, 10, 100)
PAGE_RECORDS = 20
CHANGES = 2_000
SORTED_CHANGES = 50
"""Changes after which a list is sorted again: each takes up to a second."""

_JSON = MessageTypes().get("json")
_ORDER = parse_order_by("/n")


class _Nobody:
    """Takes messages, and counts them."""

    def __init__(self) -> None:
        self.messages = 0

    def deliver(self, _message: RecordMessage) -> None:
        """See `RecordDelivery.deliver`."""
        self.messages += 1


def main() -> None:
    """Measure and print."""
    rows: list[list[object]] = []
    for count in COUNTS:
        records = _records(count)
        costs = [_followed(records, pages) for pages in PAGES]
        rows.append([f"{count:,}", *(f"{cost:.1f}" for cost in costs), f"{_sorted(records):.0f}"])
    print_table(
        f"A change of a record among so many, microseconds; pages of {PAGE_RECORDS} records",
        ["records", *(f"{pages} pages" for pages in PAGES), "a list, sorted again"],
        rows,
    )


def _records(count: int) -> dict[str, Record]:
    made = random.Random(count)
    return {str(key): _record(str(key), made.random()) for key in range(count)}


def _record(key: str, n: float) -> Record:
    return Record(key, b'{"id":%b,"n":%f}' % (key.encode(), n), "t")


def _followed(records: dict[str, Record], pages: int) -> float:
    """Microseconds for a change that a result set with some pages follows."""
    current = dict(records)
    results, differ, nobody = ResultSet(_JSON, _ORDER), DeltaEncoder(_JSON, [("id",)]), _Nobody()
    results.fill(list(records.values()))
    results.finish_fill()
    results.catch_up(1)
    for number in range(pages):
        start = number * len(records) // pages
        terms = PageTerms(_ORDER, start, start + PAGE_RECORDS)
        page = Page(_subscriber(), terms, results, current.get, differ, lambda _form: nobody)
        results.attach(page)
        page.cut_page()
        page.go_live()

    def change(key: str, n: float) -> None:
        previous, record = current[key], _record(key, n)
        current[key] = record
        results.apply_change(
            record, previous, RecordMessage.for_unchanged_record(record, MATCH, differ)
        )

    return _measure(change, records, CHANGES)


def _subscriber() -> Subscription:
    session: Any = _Unlimited()  # all that is asked of a connection whose messages go to nobody
    terms = SubscriptionTerms(select_topics("t", literal=True), tracks_focus=True)
    return Subscription(session, "s", terms)


class _Unlimited:
    """A connection that may take any memory."""

    def charge_memory(self, size: int) -> None:
        """Take note of nothing."""


def _sorted(records: dict[str, Record]) -> float:
    """Microseconds for a change after which a list is sorted again."""
    extract = _JSON.extractor([("n",)])
    entries = {key: (str(extract(record.body)[0]), key) for key, record in records.items()}
    order = sorted(entries.values())

    def change(key: str, n: float) -> None:
        order.remove(entries[key])
        entries[key] = (str(extract(_record(key, n).body)[0]), key)
        order.append(entries[key])
        order.sort()

    return _measure(change, records, SORTED_CHANGES)


def _measure(change: Callable[[str, float], None], records: dict[str, Record], times: int) -> float:
    made = random.Random(times)
    keys = list(records)
    steps = [(made.choice(keys), made.random()) for _ in range(times)]
    started = time.process_time()
    for key, n in steps:
        change(key, n)
    return (time.process_time() - started) / times * 1e6


if __name__ == "__main__":
    main()
