"""Whatever happens to records, a client that mirrors its groups from what it is sent has them.

The model is a few lines: the records that match, grouped and computed anew.
"""

from __future__ import annotations

from itertools import groupby
from random import Random
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.mirrors import Mirror, Step, World, call, query
from tests.engine.support import Core
from tests.support.chances import examples

FILTERS = ("1=1", "/n < 3", "/n >= 2 OR /g = 'a'", "/id IN (1, 3, 5)")
PROJECTION = (
    "/g,COUNT(/id) AS /count,SUM(/n) AS /sum,MAX(/n) AS /max,COUNT_DISTINCT(/n) AS /distinct,"
    "GROUP_CONCAT(/n, ']') AS /all,/id AS /last"
)
NUMBERS = st.integers(0, 5)
NAMES = st.sampled_from("abc")


ORDERS = ("/g", "/count DESC, /g")


class Page(NamedTuple):
    """A page of groups."""

    order: str
    top_n: int
    skip_n: int

    def of(self, groups: dict[str, Any]) -> dict[str, Any]:
        """The model: all groups, sorted, and cut."""
        names = sorted(groups)
        if self.order != "/g":
            names.sort(key=lambda name: -groups[name]["count"])
        return {name: groups[name] for name in names[self.skip_n : self.skip_n + self.top_n]}


def options_of(page: Page | None) -> str:
    """The options that ask for a page."""
    return f",top_n={page.top_n},skip_n={page.skip_n}" if page else ""


def groups_of(records: list[Any], last: dict[int, int]) -> dict[str, Any]:
    """The model.

    Args:
        records: those that match.
        last: when each id was published last.
    """
    result = {}
    for name, group in groupby(sorted(records, key=lambda one: one["g"]), lambda one: one["g"]):
        members = list(group)
        numbers = [one["n"] for one in members if one["n"] is not None]
        result[name] = {
            "g": name,
            "count": len(members),
            "sum": float(sum(numbers)) if numbers else None,
            "max": max(numbers, default=None),
            "distinct": len(set(numbers)),
            "all": "]".join(sorted(set(map(str, numbers)))) or None,
            "last": max(members, key=lambda one: last[one["id"]])["id"],
        }
    return result


class Reader(Mirror):
    """A client that keeps a copy of its groups.

    Args:
        core: the engine.
        command: how it follows.
        options: further options.
    """

    def __init__(self, core: Core, command: str, options: str) -> None:
        super().__init__(core, command)
        self._options = f"oof,projection=[{PROJECTION}],grouping=[/g]{options}"
        self.filter: str | None = None
        self.page: Page | None = None

    def follow(self, filter_: str, page: Page | None = None) -> None:
        """Begin to follow groups, and stop to follow others."""
        if self.is_waiting:
            return
        self.peer.send({"c": "unsubscribe", "cid": "u", "sub_id": "r"})
        self.peer.take_frames()
        self.copy.clear()
        self.filter, self.page = filter_, page
        self.ask(self._options + options_of(page), f=filter_, orderby=page.order if page else "")

    def turn_to(self, page: Page) -> None:
        """Go on to another page of the same groups."""
        if self.page is not None and self.filter is not None:
            self.page = page
            options = self._options + options_of(page) + ",replace"
            self.ask(options, f=self.filter, orderby=page.order)

    def forget(self, key: str, message: dict[str, Any]) -> None:
        """A group that goes is shown as it was; one that leaves a page, as it is."""
        known = self.copy.pop(key)
        assert self.page is not None or message == known


class GroupedWorld(World):
    """A world with readers of groups.

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
        self._published = 0
        self._last: dict[int, int] = {}
        for number in range(6):
            self.publish(number, number % 4, "abc"[number % 3])

    def publish(self, id_: int, n: int | None, g: str, **keys: Any) -> None:
        """See `put`."""
        self.put({"id": id_, "n": n, "g": g}, **keys)
        self._published += 1
        self._last[id_] = self._published

    def follow(self, reader: int, busy: bool, filter_: str, page: Page | None) -> None:
        """A client begins to follow groups."""
        if busy:
            self.readers[reader].be_busy()
            self.readers[reader].take_in()
        self.readers[reader].follow(filter_, page)

    def turn_to(self, reader: int, busy: bool, page: Page) -> None:
        """A client goes on to another page."""
        if busy:
            self.readers[reader].be_busy()
        self.readers[reader].turn_to(page)

    def check(self) -> None:
        """Compare the copies of all readers whose query has ended."""
        for reader in self.readers:
            reader.take_in()
            if reader.filter is None or reader.is_waiting:
                continue
            records = [*query(self.core, f=reader.filter).values()]
            reader.take_in()  # records may have expired
            expected = groups_of(records, self._last)
            copy = {message["g"]: dict(message) for message in reader.copy.values()}
            for name, group in copy.items():
                members = [one["id"] for one in records if one["g"] == name]
                if group["last"] not in members:  # it stays when the record has left
                    group["last"] = expected[name]["last"]
            assert copy == (expected if reader.page is None else reader.page.of(expected))

    def check_query(self) -> None:
        """Compare what a query of all groups gives."""
        options = f"projection=[{PROJECTION}],grouping=[/g]"
        found = query(self.core, o=options, orderby="/g")
        records = [*query(self.core).values()]
        assert [*found.values()] == [*groups_of(records, self._last).values()]


PAGE = st.builds(Page, st.sampled_from(ORDERS), st.integers(0, 3), st.integers(0, 3))
READER = st.integers(0, 1), st.booleans()
STEP = st.one_of(
    call("publish", NUMBERS, st.none() | NUMBERS, NAMES),
    call("publish", NUMBERS, NUMBERS, NAMES, e=1),
    call("delete", st.sampled_from(FILTERS)),
    call("follow", *READER, st.sampled_from(FILTERS), st.none() | PAGE),
    call("turn_to", *READER, PAGE),
    call("turn"),
    call("wait", st.just(0.6)),
)


@settings(max_examples=examples(20, 5), deadline=None)
@given(st.lists(STEP, min_size=10, max_size=40))
def test_a_mirror_has_the_groups(steps: list[Step]) -> None:
    """After every step, for readers whose query has ended."""
    world = GroupedWorld()
    world.stays_right(steps)
    world.check_query()


@settings(max_examples=examples(10, 3), deadline=None)
@given(st.lists(STEP, min_size=10, max_size=40))
def test_a_conflated_mirror_has_the_groups_in_the_end(steps: list[Step]) -> None:
    """Once everything that waited has been sent."""
    GroupedWorld(",conflation=500ms").ends_right(steps)


def test_a_large_topic_changes_while_it_is_aggregated() -> None:
    """Its records are found in many slices, and changed between them."""
    random = Random(5)
    world = GroupedWorld()
    for number in range(3_000):
        world.publish(number, number % 977, f"g{number % 750}")
    for reader in world.readers:
        reader.follow(random.choice(FILTERS))
    assert all(reader.is_waiting for reader in world.readers)
    turns = 0
    while any(reader.is_waiting for reader in world.readers):
        turns += 1
        for _ in range(random.randrange(200)):
            group = f"g{random.randrange(850)}"
            world.publish(random.randrange(3_100), random.randrange(977), group)
        world.delete(f"/id = {random.randrange(4)}")
        world.turn()
        for reader in world.readers:
            reader.take_in()
    assert turns > 3
    world.wait(0)
    world.check()
