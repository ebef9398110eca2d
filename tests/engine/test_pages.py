"""Whatever happens to records, a client that mirrors its page from what it is sent has the page.

The model is ten lines: all records that match, sorted, and cut.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.mirrors import Mirror, Step, World, call, query
from tests.engine.support import Core
from tests.support.chances import examples

FILTERS = ("1=1", "/n < 3", "/n >= 2", "/m = 1 AND /n != 2", "/n IS NULL OR /id > 3")
ORDERS: dict[str, list[tuple[str, bool]]] = {
    "": [],
    "/n": [("n", False)],
    "/n DESC": [("n", True)],
    "/m DESC, /n": [("m", True), ("n", False)],
}
NUMBERS = st.integers(0, 5)


def page_of(
    records: dict[str, Any], order: list[tuple[str, bool]], top_n: int, skip_n: int
) -> dict[str, Any]:
    """The model."""
    keys = sorted(records, key=int)
    for field, descending in reversed(order):
        keys.sort(key=lambda key: _rank(records[key].get(field), descending=descending))
    return {key: records[key] for key in keys[skip_n : skip_n + top_n]}


def _rank(value: int | None, *, descending: bool) -> tuple[int, int]:
    sign = -1 if descending else 1
    return (0, 0) if value is None else (sign, sign * value)


class Reader(Mirror):
    """A client that keeps a copy of its page.

    Args:
        core: the engine.
        command: how it follows.
        options: further options.
    """

    def __init__(self, core: Core, command: str, options: str) -> None:
        super().__init__(core, command)
        self._core = core
        self._options = options
        self._page: tuple[str, str, int, int] | None = None

    def follow(self, filter_: str, order: str, top_n: int, skip_n: int) -> None:
        """Begin to follow a page, or go on to another one."""
        options = f"oof,top_n={top_n},skip_n={skip_n}{self._options}"
        if self._page is not None:
            options += ",replace"
            order = order or self._page[1]
        self.ask(options, f=filter_, orderby=order)
        self._page = filter_, order, top_n, skip_n

    def check(self) -> None:
        """Once everything has arrived, the copy has to be right."""
        self.take_in()
        if self.is_waiting or self._page is None:
            return
        filter_, order, top_n, skip_n = self._page
        records = query(self._core, f=filter_)
        self.take_in()
        assert self.copy == page_of(records, ORDERS[order], top_n, skip_n)


class PagedWorld(World):
    """A world with readers of pages.

    Args:
        options: the options of the readers.
    """

    readers: list[Reader]

    def __init__(self, options: str = "") -> None:
        super().__init__()
        self.readers = [
            Reader(self.core, command, options)
            for command in ("sow_and_subscribe", "sow_and_delta_subscribe")
        ]
        for number in range(6):
            self.publish(number, number % 4, number % 2)

    def publish(self, id_: int, n: int | None, m: int, **keys: Any) -> None:
        """See `put`."""
        self.put({"id": id_, "n": n, "m": m}, **keys)

    def change(self, id_: int, n: int) -> None:
        """A field of a record changes."""
        self.publisher.send({"c": "delta_publish", "t": "t"}, b'{"id":%d,"n":%d}' % (id_, n))

    def follow(self, reader: int, busy: bool, *page: Any) -> None:
        """A client reads a page, or goes on to another one."""
        if busy:
            self.readers[reader].be_busy()
        self.readers[reader].follow(*page)

    def check(self) -> None:
        """Compare the copies of all readers whose query has ended."""
        for reader in self.readers:
            reader.check()


PAGE = st.sampled_from(FILTERS), st.sampled_from(sorted(ORDERS)), NUMBERS, NUMBERS
STEP = st.one_of(
    call("publish", NUMBERS, st.none() | NUMBERS, NUMBERS),
    call("publish", NUMBERS, NUMBERS, NUMBERS, e=1),
    call("change", NUMBERS, NUMBERS),
    call("delete", st.sampled_from(FILTERS)),
    call("follow", st.integers(0, 1), st.booleans(), *PAGE),
    call("turn"),
    call("wait", st.just(0.6)),
)


TURNED_WHILE_BUSY: list[Step] = [
    # record 2 changes before the new page has taken over what its client has
    ("follow", (1, False, "/n >= 2", "/m DESC, /n", 5, 0), {}),
    ("follow", (1, True, "/n >= 2", "", 2, 4), {}),
    ("publish", (5, 3, 1), {}),
    ("change", (2, 4), {}),
    ("publish", (0, 5, 2), {}),
    ("publish", (1, 2, 4), {}),
]


@settings(max_examples=examples(70, 8), deadline=None)
@given(st.lists(STEP, min_size=20, max_size=50))
@example(TURNED_WHILE_BUSY)
def test_a_mirror_is_the_page(steps: list[Step]) -> None:
    """After every step, for readers whose query has ended."""
    PagedWorld().stays_right(steps)


@settings(max_examples=examples(30, 8), deadline=None)
@given(st.lists(STEP, min_size=20, max_size=50))
def test_a_conflated_mirror_is_the_page_in_the_end(steps: list[Step]) -> None:
    """Once everything that waited has been sent."""
    PagedWorld(",conflation=500ms").ends_right(steps)


def test_a_large_topic_changes_while_it_is_paged() -> None:
    """Its records are found in many slices, and changed between them."""
    random = Random(5)
    world = PagedWorld()
    for number in range(10_000):
        world.publish(number, number % 977, number % 5)
    for number in range(12):
        for reader in world.readers:
            order = random.choice([*ORDERS][1:])
            reader.follow(random.choice(FILTERS), order, 2500, number * 100)
        for _ in range(random.randrange(20)):
            world.publish(random.randrange(10_100), random.randrange(977), random.randrange(5))
            world.delete(f"/id = {random.randrange(4)}")
            world.turn()
    world.wait(5)
    world.check()
