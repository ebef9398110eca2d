"""What goes where."""

from __future__ import annotations

import pytest

from server.replication.core import Hop, Routes, TopicRoute, append_hop, hops
from server.replication.core.routes import LinkRoute
from server.storage.journal import JournalTopic

ORDERS = JournalTopic("json", "orders")

CASES = {
    "published here": ("", True, True),
    "from a group that is let through": ("A@North", True, True),
    "let through by where it came from last": ("X@South,A@North", True, True),
    "from another group": ("X@South", False, False),
    "through another group last": ("A@North,X@South", False, False),
    "from the destination itself": ("B@North", False, True),
    "through the destination": ("B@North,A@North", False, True),
}


@pytest.mark.parametrize(("path", "goes", "returns"), CASES.values(), ids=CASES)
def test_where_entries_go_by_their_path(path: str, goes: bool, returns: bool) -> None:
    routes = Routes([TopicRoute("json", "orders")], ["^North$"])
    assert (LinkRoute(routes, "B").filters_for(ORDERS, path) == ()) == goes
    assert (
        LinkRoute(routes, "B", is_return_allowed=True).filters_for(ORDERS, path) == ()
    ) == returns


@pytest.mark.parametrize(
    ("message_type", "name", "goes"),
    [
        ("json", "orders", True),
        ("json", "/eu/orders", True),
        ("json", "orders2", False),
        ("fix", "orders", False),
        ("fix", "/eu/orders", False),
    ],
)
def test_where_entries_go_by_their_topic(message_type: str, name: str, goes: bool) -> None:
    routes = Routes([TopicRoute("json", "orders"), TopicRoute("json", "^/eu/")])
    assert routes.includes(JournalTopic(message_type, name)) == goes


def test_a_topic_without_a_filter_among_those_that_match_takes_all() -> None:
    def nothing(topic: JournalTopic, bodies: object) -> list[bool]:
        return []

    filtered = TopicRoute("json", "orders", nothing)
    assert Routes([filtered]).filters_for(ORDERS) == (nothing,)
    assert Routes([filtered, TopicRoute("json", "^ord")]).filters_for(ORDERS) == ()


@pytest.mark.parametrize(
    "hop", [Hop("A", "A"), Hop("A", "North"), Hop("a,b@c%", "100% %2C"), Hop("ä b", "@")]
)
def test_names_of_any_kind_are_on_a_path(hop: Hop) -> None:
    path = append_hop(append_hop("", hop), Hop("last", "last"))
    assert hops(path) == (hop, Hop("last", "last"))
    assert hops("") == ()
