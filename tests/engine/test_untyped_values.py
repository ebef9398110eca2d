"""Values of fix, nvfix and xml are texts, and those that are numbers are meant as numbers.

In a JSON body, a text is a text. Where a filter has a literal, that decides what is meant.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.message_types.base import Value
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.raw import frame

UNTYPED = ("fix", "nvfix", "xml")
QUANTITIES = {"1": "10", "2": "9", "3": "-1.5", "4": "abc", "5": "", "6": "1e1", "7": "100"}
"""The field /44 of records, by their field /1."""

AS_NUMBERS = ["5", "3", "2", "1", "6", "7", "4"]
AS_TEXTS = ["5", "3", "1", "7", "6", "2", "4"]


def orders(message_type: str) -> tuple[Core, CorePeer]:
    """Records whose field /38 is always 9."""
    core = Core(message_type=message_type)
    core.keep(topic_spec("/f1" if message_type == "xml" else "/1", message_type=message_type))
    peer = core.log_on()
    for number, quantity in QUANTITIES.items():
        peer.send({"c": "p", "t": "orders"}, body(core, message_type, number, quantity))
    peer.take_frames()
    return core, peer


def body(core: Core, message_type: str, number: str, quantity: str) -> bytes:
    """A record."""
    fields: dict[str, Value] = {"1": number, "44": quantity, "38": "9"}
    named = {f"f{name}" if message_type == "xml" else name: fields[name] for name in fields}
    return core.types[message_type].build([((name,), value) for name, value in named.items()])


def asked(
    core: Core, peer: CorePeer, message_type: str, field: str = "1", **header: Any
) -> list[Value]:
    """A field of the records that a query finds, in their order."""
    if message_type == "xml":
        header = {name: text.replace("/", "/f") for name, text in header.items()}
        field = f"f{field}"
    peer.send({"c": "sow", "cid": "q", "t": "orders", "bs": "1", **header})
    read = core.types[message_type].extractor([(field,)])
    frames = peer.take_frames()
    assert not [head for head, _ in frames if head.get("status") == "failure"], frames
    found = [content[content.index(b"}") + 1 :] for head, content in frames if head["c"] == "sow"]
    return [read(one)[0] for one in found]


@pytest.mark.parametrize("message_type", UNTYPED)
def test_an_order_is_that_of_numbers(message_type: str) -> None:
    core, peer = orders(message_type)
    assert asked(core, peer, message_type, orderby="/44,/1") == AS_NUMBERS
    assert asked(core, peer, message_type, orderby="/44 DESC,/1 DESC") == AS_NUMBERS[::-1]
    assert asked(core, peer, message_type, orderby="/44,/1", opts="top_n=2,skip_n=2") == ["2", "1"]


def test_an_order_of_texts_in_json_is_that_of_their_bytes() -> None:
    core, peer = orders("json")
    assert asked(core, peer, "json", orderby="/44,/1") == AS_TEXTS


CASES = [
    ("/44 > /38", "1467", "4"),
    ("/44 <= /38", "23", "12367"),
    ("/38 = /44", "2", "2"),
    ("/44 != /38", "13467", "13467"),
    ("/1 BETWEEN /44 AND /38", "3", "367"),
    ("/44 IN (/38, /1)", "2", "2"),
    ("GREATEST(/44, /38) = /44", "12467", "24"),
    ("/44 = 10", "16", "16"),
    ("/44 = '10'", "1", "1"),
    ("/44 < '9'", "1367", "1367"),
    ("NOT (/44 > /38)", "23", "12367"),
]
"""Filters, and the records that match them where types are inferred, and in JSON."""


@pytest.mark.parametrize(("filter_", "inferred", "as_texts"), CASES)
@pytest.mark.parametrize("message_type", [*UNTYPED, "json"])
def test_two_fields_are_compared_as_numbers(
    message_type: str, filter_: str, inferred: str, as_texts: str
) -> None:
    """In queries, and for subscriptions."""
    core, peer = orders(message_type)
    wanted = as_texts if message_type == "json" else inferred
    assert "".join(sorted(map(str, asked(core, peer, message_type, filter=filter_)))) == wanted
    named = filter_.replace("/", "/f") if message_type == "xml" else filter_
    peer.send({"c": "subscribe", "cid": "s", "t": "orders", "filter": named})
    peer.take_frames()
    read = core.types[message_type].extractor([("f1" if message_type == "xml" else "1",)])
    for number, quantity in QUANTITIES.items():
        content = body(core, message_type, number, quantity)
        peer.send_bytes(frame({"c": "p", "t": "orders"}, content) * 2)
    found = [read(content)[0] for _, content in peer.take_frames()]
    assert "".join(sorted(map(str, found))) == "".join(c * 2 for c in wanted)


@pytest.mark.parametrize("message_type", UNTYPED)
def test_the_greatest_is_that_of_numbers(message_type: str) -> None:
    """In a client's own aggregation; what is no number is greater than all that are."""
    core, peer = orders(message_type)
    options = "projection=[/38,MAX(/44) AS /99,MIN(/44) AS /98],grouping=[/38]"
    assert asked(core, peer, message_type, "99", opts=options) == ["abc"]
    given = {"filter": "/1 < 4", "opts": options}
    assert asked(core, peer, message_type, "99", **given) == ["10"]
    assert asked(core, peer, message_type, "98", **given) == ["-1.5"]
    found = asked(core, peer, message_type, "99", filter="/1 IN (1, 7)", opts=options)
    assert json.loads(str(found[0])) == 100
