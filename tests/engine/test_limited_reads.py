"""Whatever somebody with a limited permit asks for, they get what matches both filters, cut down.

The model is one line: of the messages that the entitlement filter lets through, what the select
list leaves, if that matches the client's own filter. Whole messages are seen by the entitlement
filter alone.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.expressions import BUILTINS, ContextKind, parse
from server.expressions.backends.compile_message import compile_filter
from server.expressions.redaction import hide
from server.expressions.tree import paths
from server.message_types.registry import MessageTypes
from server.message_types.select_list import parse_selection
from server.topics import topic_table
from tests.engine.limits import cut, log_on_limited, matches
from tests.engine.mirrors import Mirror, Step, World, call, query
from tests.engine.support import TYPES, Core, CorePeer
from tests.engine.test_pages import ORDERS, page_of
from tests.storage.sow.support import topic_spec
from tests.support.chances import examples
from tests.support.sow import split_records

FIELDS = st.sampled_from(["/id", "/a", "/s", "/c/x", "/c/s", "/c", "/none"])
TESTS = st.one_of(
    st.builds("{} = {}".format, FIELDS, st.integers(0, 2)),
    st.builds("{} > {}".format, FIELDS, st.integers(0, 2)),
    st.builds("{} IS NULL".format, FIELDS),
    st.builds("{} IN (0, 2)".format, FIELDS),
    st.builds("{} LIKE '1'".format, FIELDS),
    st.builds("{} BETWEEN 1 AND 2".format, FIELDS),
    st.builds("{} + {} < 3".format, FIELDS, FIELDS),
    st.builds("COALESCE({}, {}) = 1".format, FIELDS, FIELDS),
)
FILTERS = st.recursive(
    TESTS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)
SELECTS = st.none() | st.sampled_from(
    ["-/s", "-/s,-/c/s", "-/,+/id,+/a", "-/c", "-/,+/c/x", "-/,+/c,-/c/s", "-/,+/id,+/c/s"]
)
SMALL = st.none() | st.integers(0, 2)
BODIES = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 9)},
        optional={
            "a": SMALL,
            "s": SMALL,
            "c": st.fixed_dictionaries({}, optional={"x": SMALL, "s": SMALL}),
        },
    ).map(lambda fields: json.dumps(fields).encode()),
    min_size=1,
    max_size=12,
)
PERMITS = st.none() | FILTERS
WAYS = ("subscribe", "regex", "sow", "sow_and_subscribe", "journal", "bookmark")


def bodies_of(peer: CorePeer) -> list[bytes]:
    """The messages that a client has received, and the records of its queries."""
    bodies = []
    for header, content in peer.take_frames():
        assert header.get("status", "success") == "success", header
        if header["c"] == "sow":
            bodies += [body for _, body in split_records(header, content)]
        elif header["c"] == "p":
            bodies.append(content)
    return bodies


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(60, 8), deadline=None)
@given(case=st.tuples(PERMITS, SELECTS, st.none() | FILTERS, SELECTS, BODIES))
def test_what_is_delivered_is_what_both_let_through(
    way: str,
    case: tuple[str | None, str | None, str | None, str | None, list[bytes]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    core, topic = Core(), "t"
    permitted, shown, filter_, select, bodies = case
    is_logged, has_records = way in ("journal", "bookmark"), way.startswith("sow")
    if is_logged:
        core.record(tmp_path_factory.mktemp("journal"), "^t")
    if has_records:
        core.keep(topic_spec("/id", name="t"))
        bodies = list({json.loads(body)["id"]: body for body in bodies}.values())
    rule = {"topic": "^t$", "read": True if permitted is None else permitted}
    reader = log_on_limited(core, [rule if shown is None else rule | {"select": shown}])
    publisher = core.log_on("publisher")

    def ask() -> None:
        header = {"c": "subscribe", "cid": "r", "t": "^t" if way == "regex" else topic}
        if way.startswith("sow"):
            header["c"] = way
        if way == "bookmark":
            header["bm"] = "0"
        if filter_ is not None:
            header["filter"] = filter_
        if select is not None:
            header["o"] = f"select=[{select}]"
        reader.send(header)

    def publish(some: list[bytes]) -> None:
        for body in some:
            publisher.send({"c": "p", "t": topic}, body)
        if is_logged:
            core.commit()

    early = len(bodies) // 2 if way in ("sow_and_subscribe", "bookmark") else 0
    early = len(bodies) if way == "sow" else early
    publish(bodies[:early])
    ask()
    core.clock.advance(0.1)
    publish(bodies[early:])
    core.clock.advance(0.1)
    expected = [
        cut(select, seen)
        for body in bodies
        if permitted is None or matches(permitted, body)
        if filter_ is None or matches(filter_, cut(shown, body))
        for seen in [cut(shown, body)]
    ]
    got = bodies_of(reader)
    assert sorted(map(_normal, got)) == sorted(map(_normal, expected))


def _normal(body: bytes) -> str:
    return json.dumps(json.loads(body), sort_keys=True)


@pytest.mark.parametrize("name", TYPES)
def test_filters_read_what_the_select_list_leaves(name: str) -> None:
    """Of messages of every type, without having them cut down first."""
    message_type, root = MessageTypes().get(name), ("r",) if name == "xml" else ()
    prefix = "/r" if root else ""
    body = message_type.build([((*root, field), field * 2) for field in ("id", "a", "s")])
    for shown in ("-/", "-{0}/s", "-/,+{0}/id", "-{0}/a,-{0}/s", "-/,+{0}/s"):
        selection = parse_selection(shown.format(prefix))
        left = message_type.select(body, selection)
        for asked in ("{0}/s = 'ss'", "{0}/s IS NULL", "NOT ({0}/s = {0}/a)", "{0}/id > {0}/s"):
            expr = parse(asked.format(prefix), ContextKind.FILTER, BUILTINS)
            hidden = hide(expr, selection.includes_whole)
            results = [
                compile_filter(one)(message_type.extractor(paths(one))(some))
                for one, some in ((hidden, body), (expr, left))
            ]
            assert results[0] == results[1], (shown, asked)


def test_equal_limits_are_decided_once() -> None:
    core = Core()
    rules = [{"topic": "^t", "read": "/n > 1"}]
    for name in "abc":
        peer = log_on_limited(core, rules, name)
        peer.send({"c": "subscribe", "cid": "1", "t": "t" if name == "a" else "^t"})
        peer.send({"c": "subscribe", "cid": "2", "t": "t", "filter": "/m = 1"})
    topic = core.engine.topics.find("json", "t")
    subscriptions = [
        one for session in core.engine.sessions for one in session.subscriptions.values()
    ]
    costs = {topic.cost_of(one) for one in subscriptions}
    assert {(cost.filter, cost.user_count) for cost in costs if cost is not None} == {
        ("/n > 1", 3),
        ("/n > 1 AND /m = 1", 3),
    }


def test_topics_are_forgotten_and_found_again_with_their_limits() -> None:
    core = Core()
    core.engine.topics = topic_table.TopicTable(
        core.types, BUILTINS, core.engine.sow_registry, core.engine.scheduler.queue_task, 2
    )
    reader = log_on_limited(core, [{"topic": "^t", "read": "/n > 1", "select": "-/s"}])
    publisher = core.log_on("publisher")
    reader.send({"c": "subscribe", "cid": "1", "sub_id": "1", "t": "."})
    for number in range(60):
        publisher.send({"c": "p", "t": f"{'tu'[number % 2]}{number % 12}"}, b'{"n":1,"s":3}')
        publisher.send({"c": "p", "t": f"{'tu'[number % 2]}{number % 12}"}, b'{"n":2,"s":3}')
        core.clock.turn()
    assert bodies_of(reader) == [b'{"n":2}'] * 30
    assert len(core.engine.topics) < 12
    reader.send({"c": "unsubscribe", "cid": "2", "sub_id": "1"})
    publisher.send({"c": "p", "t": "t0"}, b'{"n":2,"s":3}')
    assert bodies_of(reader) == []


# ---- records that come and go

PERMITTED = "/d = 1 AND /s != 'hush 3'"
RULES: list[dict[str, Any]] = [
    {"topic": "^t$", "read": PERMITTED, "select": "-/s"},
    {"topic": "^other/", "read": True},
]
QUESTIONS = (
    "1=1",
    "/n < 3",
    "/n >= 2 OR /id = 1",
    "/s IS NULL",
    "/s = 'hush 1'",
    "/s != 'hush 1' OR /n = 2",
    "NOT (/s LIKE '2')",
    "MESSAGE_SIZE() > 40 OR /n = 1",
)
PROJECTION = "/n,COUNT(/id) AS /count,MAX(/s) AS /max,SUM(/m) AS /sum,/s AS /last"
HIDDEN = b"hush"
NUMBERS = st.integers(0, 4)


def seen_by_reader(records: dict[str, Any], filter_: str) -> dict[str, Any]:
    """The model: what there is of a topic for somebody whom `RULES` are about."""
    seen = {}
    for key, record in records.items():
        if matches(PERMITTED, json.dumps(record).encode()):
            left = {name: value for name, value in record.items() if name != "s"}
            if "MESSAGE_SIZE" in filter_:
                matched = left.get("n") == 1
            else:
                matched = matches(filter_, json.dumps(left).encode())
            if matched:
                seen[key] = left
    return seen


class LimitedMirror(Mirror):
    """A client with a limited permit that keeps a copy of what it is sent.

    Args:
        world: where it is.
        command: how it follows.
        options: further options.
    """

    def __init__(self, world: LimitedWorld, command: str, options: str) -> None:
        super().__init__(world.core, command)
        self.peer = log_on_limited(world.core, RULES)
        self._world = world
        self._options = options
        self.filter: str | None = None
        self.order = ""
        self.page = ""

    def follow(self, filter_: str, order: str, page: str) -> None:
        """Begin to follow, or follow something else."""
        if self.is_grouped and (self.filter is not None or self.is_waiting):
            return
        if self.filter is not None or not self.is_paged:
            page = self.page
        order = (order or self.order) if page else ""
        options = f"oof{self._options}{page}"
        if self.filter is not None:
            options += ",replace"
        self.ask(options, f=filter_, **({"orderby": order} if order else {}))
        self.filter, self.order, self.page = filter_, order, page

    @property
    def is_grouped(self) -> bool:
        """Whether it follows groups."""
        return "projection" in self._options

    @property
    def is_paged(self) -> bool:
        """Whether it may follow pages."""
        return not self.is_grouped

    def take_in(self) -> None:
        """Apply what has been received: nothing of it may be anything that is hidden."""
        assert HIDDEN not in self.peer.received
        super().take_in()

    def forget(self, key: str, message: dict[str, Any]) -> None:
        """What goes is shown as it is, or was, when it could be seen."""
        if not self.is_grouped:
            assert message == {} or message in self._world.visible
        del self.copy[key]

    def check(self) -> None:
        """Once everything has arrived, the copy has to be right."""
        self.take_in()
        if self.is_waiting or self.filter is None:
            return
        seen = seen_by_reader(query(self._world.core), self.filter)
        if self.is_grouped:
            seen = self._grouped(seen)
            assert {one["n"]: one for one in self.copy.values()} == seen
            return
        if self.page:
            seen = page_of(seen, ORDERS.get(self.order, []), 2, 0)
        assert self.copy == seen

    def _grouped(self, seen: dict[str, Any]) -> dict[Any, Any]:
        groups: dict[Any, Any] = {}
        for record in seen.values():
            empty = {"n": record["n"], "count": 0, "max": None, "sum": 0.0, "last": None}
            group = groups.setdefault(record["n"], empty)
            group["count"] += 1
            group["sum"] += record["m"]
        return groups


class LimitedWorld(World):
    """A world with readers that may see some of it.

    Args:
        options: the options of the readers.
    """

    readers: list[LimitedMirror]

    def __init__(self, options: str = "") -> None:
        super().__init__()
        self.visible: list[dict[str, Any]] = []
        self.readers = [
            LimitedMirror(self, command, options)
            for command in ("sow_and_subscribe", "sow_and_delta_subscribe")
        ]
        for number in range(5):
            self.publish(number, number % 4, number % 2, 1, 4 - number)

    def publish(self, id_: int, n: int, m: int, d: int, s: int, **keys: Any) -> None:
        """See `put`."""
        body = {"id": id_, "n": n, "m": m, "d": d, "s": f"hush {s}"}
        if matches(PERMITTED, json.dumps(body).encode()):
            self.visible.append({name: value for name, value in body.items() if name != "s"})
        self.put(body, **keys)

    def follow(self, reader: int, busy: bool, filter_: str, order: str, page: bool) -> None:
        """A client follows something."""
        if busy:
            self.readers[reader].be_busy()
        self.readers[reader].follow(filter_, order, ",top_n=2,skip_n=0" if page else "")

    def check(self) -> None:
        """Compare the copies of all readers whose query has ended."""
        for reader in self.readers:
            reader.check()


PUBLISHED = NUMBERS, NUMBERS, st.integers(0, 1), st.integers(0, 1), st.integers(0, 3)
STEP = st.one_of(
    call("publish", *PUBLISHED),
    call("publish", *PUBLISHED, e=1),
    call("delete", st.just("/n < 3")),
    call(
        "follow",
        st.integers(0, 1),
        st.booleans(),
        st.sampled_from(QUESTIONS),
        st.sampled_from(["/s", *sorted(ORDERS)]),
        st.booleans(),
    ),
    call("turn"),
    call("wait", st.just(0.6)),
)
GROUPED = f",projection=[{PROJECTION}],grouping=[/n]"


@pytest.mark.parametrize("options", ["", GROUPED])
@settings(max_examples=examples(70, 8), deadline=None)
@given(steps=st.lists(STEP, min_size=15, max_size=40))
def test_a_limited_mirror_is_what_may_be_seen(options: str, steps: list[Step]) -> None:
    """After every step, for readers whose query has ended."""
    LimitedWorld(options).stays_right(steps)


@pytest.mark.parametrize("options", [",conflation=500ms", f",conflation=500ms{GROUPED}"])
@settings(max_examples=examples(40, 8), deadline=None)
@given(steps=st.lists(STEP, min_size=15, max_size=40))
def test_a_limited_conflated_mirror_is_that_in_the_end(options: str, steps: list[Step]) -> None:
    """Once everything that waited has been sent."""
    LimitedWorld(options).ends_right(steps)


def test_what_a_page_that_is_replaced_in_its_query_has_sent_is_what_goes() -> None:
    """Not the record as it is by then, which its reader may not see any more."""
    publish: Step = ("publish", (0, 0, 0, 0, 0), {})
    turn: Step = ("turn", (), {})
    LimitedWorld(",conflation=500ms").ends_right(
        [
            *[publish] * 12,
            ("follow", (0, True, "1=1", "/s", True), {}),
            ("publish", (2, 0, 0, 0, 0), {}),
            *[turn, publish, turn, turn, publish, turn, *[publish] * 3],
            ("follow", (0, False, "1=1", "/s", False), {}),
        ]
    )
