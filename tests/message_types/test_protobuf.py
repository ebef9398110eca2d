"""Protobuf: definitions compiled from `.proto` files; bodies checked as bytes of the wire format,
and against classes that `google.protobuf` makes of the same files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path as FilePath
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.base import BodyError, MessageType, MessageTypeError, Value
from server.message_types.paths import parse_path
from server.message_types.select_list import parse_selection
from tests.message_types.bodies import damaged, message_type, survives

pytestmark = pytest.mark.process  # the compiler is one

ORDERS = """
syntax = "proto2";
package shop.v1;
import "common/side.proto";

message Leg {
  required int32 id = 1;
  optional string symbol = 2;
  repeated double px = 3;
}

message Order {
  required string id = 1;
  optional int64 qty = 2 [default = 100];
  optional string note = 3 [default = "a\\"b\\\\\\001\\303\\251"];
  optional common.Side side = 4;
  optional Leg main = 5;
  repeated Leg legs = 6;
  map<string, double> prices = 7;
  map<int32, Leg> by_id = 8;
  repeated string tags = 9;
  oneof pay {
    Leg cash = 10;
    int32 card = 11 [default = 7];
  }
  optional bytes raw = 12;
  optional bool from = 13;
  optional Order a = 14;
  map<bool, int32> flags = 15;
  repeated group Part = 16 { optional int32 n = 1; }
  extensions 100 to 200;
}
extend Order { repeated int32 extra = 100; }
"""
SIDE = """
package common;
enum Side { BUY = 1; SELL = 2; }
message Holder { optional Side side = 1; }
"""
TICKS = """
syntax = "proto3";
package feed;
import "google/protobuf/timestamp.proto";

message Tick {
  string symbol = 1;
  double px = 2;
  optional int32 size = 3;
  google.protobuf.Timestamp at = 4;
  repeated Tick children = 5;
  map<string, Tick> named = 6;
  fixed64 serial = 7;
  sint32 change = 8;
  float weight = 9;
  oneof kind { bool bid = 10; Tick of = 11; }
  repeated sint64 path = 12;
}
"""


@pytest.fixture(scope="module")
def protos(tmp_path_factory: pytest.TempPathFactory) -> FilePath:
    root = tmp_path_factory.mktemp("protos")
    for name, text in {
        "orders.proto": ORDERS,
        "shared/side.proto": SIDE,
        "ticks.proto": TICKS,
        "broken.proto": 'syntax = "proto3";\nmessage M { int32 a = 1 }\n',
        "lost.proto": 'syntax = "proto3";\nimport "gone/x.proto";\n',
        "edition.proto": 'edition = "2023";\nmessage M { int32 a = 1; }\n',
    }.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return root


def options(protos: FilePath, file: str, name: str) -> dict[str, list[str]]:
    return {
        "ProtoPath": [str(protos), f"common ; {protos}/shared"],
        "ProtoFile": [file],
        "Type": [name],
    }


@pytest.fixture(scope="module")
def orders(protos: FilePath) -> MessageType:
    return message_type("protobuf", **options(protos, "orders.proto", "shop.v1.Order"))


@pytest.fixture(scope="module")
def ticks(protos: FilePath) -> MessageType:
    return message_type("protobuf", **options(protos, "ticks.proto", "feed.Tick"))


@pytest.fixture(scope="module")
def classes(protos: FilePath) -> dict[str, Any]:
    """Message classes that google.protobuf makes of the files, not knowing of AMPS."""
    output = protos / "descriptors"
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{protos}",
        f"-Icommon={protos}/shared",
    ]
    files = ["orders.proto", "ticks.proto"]
    subprocess.run(
        [*command, "--include_imports", f"--descriptor_set_out={output}", *files], check=True
    )
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(output.read_bytes()).file:
        pool.Add(file)
    names = ("shop.v1.Order", "feed.Tick")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names
    }


def extract(kind: MessageType, body: bytes, *paths: str) -> tuple[Value, ...]:
    return kind.extractor([parse_path(path) for path in paths])(body)


LEG = b"\x08\x05\x12\x02zz\x1a\x10" + b"\x00" * 6 + b"\xf0\x3f" + b"\x00" * 7 + b"\x40"


@pytest.mark.parametrize(
    ("body", "path", "value"),
    [
        (b"\x0a\x03abc", "/id", "abc"),
        (b"\x0a\x02\xff\xfe", "/id", "\udcff\udcfe"),
        (b"", "/id", None),
        (b"\x0a\x00", "/id", ""),
        (b"", "/qty", 100),
        (b"\x10\x05", "/qty", 5),
        (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "/qty", -1),
        (b"", "/note", 'a"b\\\x01é'),
        (b"\x20\x02", "/side", 2),
        (b"\x20\x63", "/side", None),  # proto2 does not take an enumerator that it does not know
        (b"", "/main", None),
        (b"", "/main/id", None),
        (b"\x2a\x00", "/main", True),
        (b"\x2a\x02\x08\x05", "/main/id", 5),
        (b"\x2a\x02\x08\x05", "/main[0]/id", 5),
        (b"\x2a\x02\x08\x05", "/main[1]/id", None),
        (b"\x2a\x02\x08\x05", "/main/id/more", None),
        (b"\x2a\x18" + LEG, "/main/px", [1.0, 2.0]),
        (b"\x2a\x04\x1a\x00\x1a\x00", "/main/px", None),
        (b"\x32\x02\x08\x01\x32\x05\x08\x02\x12\x01z", "/legs/id", [1, 2]),
        (b"\x32\x02\x08\x01\x32\x05\x08\x02\x12\x01z", "/legs[1]/id", 2),
        (b"\x32\x02\x08\x01\x32\x05\x08\x02\x12\x01z", "/legs[2]/id", None),
        (b"\x32\x02\x08\x01\x32\x05\x08\x02\x12\x01z", "/legs/symbol", [None, "z"]),
        (b"\x32\x02\x08\x01\x32\x05\x08\x02\x12\x01z", "/legs", [True, True]),
        (b"", "/legs", None),
        (b"\x3a\x0e\x0a\x03IBM\x11" + b"\x00" * 6 + b"\xf8\x3f", "/prices/IBM", 1.5),
        (b"\x3a\x0e\x0a\x03IBM\x11" + b"\x00" * 6 + b"\xf8\x3f", "/prices/MSFT", None),
        (b"\x3a\x0e\x0a\x03IBM\x11" + b"\x00" * 6 + b"\xf8\x3f", "/prices", None),
        (b"\x42\x06\x08\x07\x12\x02\x08\x46", "/by_id/7/id", 70),
        (b"\x42\x06\x08\x07\x12\x02\x08\x46", "/by_id/8/id", None),
        (b"\x42\x06\x08\x07\x12\x02\x08\x46", "/by_id/99999999999/id", None),
        (b"\x42\x06\x08\x07\x12\x02\x08\x46", "/by_id/x", None),
        (b"\x42\x06\x08\x07\x12\x02\x08\x46", "/by_id/7", True),
        (b"\x7a\x04\x08\x01\x10\x09", "/flags/true", 9),
        (b"\x7a\x04\x08\x01\x10\x09", "/flags/1", None),
        (b"\x4a\x01a\x4a\x01b", "/tags", ["a", "b"]),
        (b"\x4a\x01a\x4a\x01b", "/tags[1]", "b"),
        (b"", "/card", None),
        (b"\x58\x03", "/card", 3),
        (b"\x58\x03", "/cash", None),
        (b"\x58\x03\x52\x02\x08\x01", "/card", None),
        (b"\x62\x02\x00\xff", "/raw", "\x00\udcff"),
        (b"\x68\x01", "/from", True),
        (b"\x72\x04\x72\x02\x10\x09", "/a/a/qty", 9),
        (b"\x72\x02\x72\x00", "/a/a/qty", 100),
        (b"\x83\x01\x08\x05\x84\x01", "/part/n", [5]),
        (b"\x0a\x01x", "/absent", None),
        (b"\x0a\x01x", "/main/absent", None),
        (b"\x0a\x01x", "/id[0]", "x"),
        (b"\x0a\x01x", "/id[1]", None),
        (b"\x0a\x01x", "/id/x", None),
        (b"\xf8\x07\x01\x0a\x01x", "/id", "x"),  # behind a field that the definition does not know
        (b"\x0a\x01x\x0a\x01y", "/id", "y"),
        (b"\x0a\x01x\x10", "/id", None),  # cut short
        (b"\x0a\x05x", "/qty", None),
    ],
)
def test_value_of_path(orders: MessageType, body: bytes, path: str, value: Value) -> None:
    (found,) = extract(orders, body, path)
    assert (found, type(found)) == (value, type(value))
    assert extract(orders, body, "/absent", path, path) == (None, value, value)


@pytest.mark.parametrize(
    ("body", "path", "value"),
    [
        (b"", "/symbol", ""),
        (b"", "/px", 0.0),
        (b"", "/size", None),
        (b"\x18\x00", "/size", 0),
        (b"", "/bid", None),
        (b"\x50\x00", "/bid", False),
        (b"", "/at/seconds", None),
        (b"\x22\x00", "/at/seconds", 0),
        (b"\x22\x02\x08\x05", "/at/seconds", 5),
        (b"\x39" + b"\xff" * 8, "/serial", 2**64 - 1),
        (b"\x40\x01", "/change", -1),
        (b"\x4d\x00\x00\xc0\x3f", "/weight", 1.5),
        (b"\x62\x02\x01\x02", "/path", [-1, 1]),
        (b"\x2a\x03\x0a\x01x\x2a\x00", "/children/symbol", ["x", ""]),
        (b"\x32\x08\x0a\x01k\x12\x03\x0a\x01x", "/named/k/symbol", "x"),
        (b"\x0a\x02\xff\xfe", "/symbol", "\udcff\udcfe"),
    ],
)
def test_value_of_path_in_proto3(ticks: MessageType, body: bytes, path: str, value: Value) -> None:
    (found,) = extract(ticks, body, path)
    assert (found, type(found)) == (value, type(value))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
DOUBLES = st.floats(allow_nan=False)
LEGS = st.fixed_dictionaries(
    {"id": st.integers(0, 9)}, optional={"symbol": TEXTS, "px": st.lists(DOUBLES, max_size=3)}
)
CONTENT = st.fixed_dictionaries(
    {"id": TEXTS},
    optional={
        "qty": st.integers(-(2**63), 2**63 - 1),
        "note": TEXTS,
        "side": st.sampled_from([1, 2]),
        "main": LEGS,
        "legs": st.lists(LEGS, max_size=3),
        "prices": st.dictionaries(st.sampled_from(["IBM", "MS"]), DOUBLES),
        "by_id": st.dictionaries(st.sampled_from([7, -1]), LEGS),
        "tags": st.lists(TEXTS, max_size=3),
        "card": st.integers(-5, 5),
        "raw": st.binary(max_size=5),
        "from": st.booleans(),
    },
)


def order(classes: dict[str, Any], content: dict[str, Any]) -> bytes:
    """Write an order with google.protobuf."""
    by_id = content.get("by_id", {})
    message = classes["shop.v1.Order"](**{**content, "by_id": {}})
    for key, leg in by_id.items():
        message.by_id[key].MergeFrom(type(message.main)(**leg))
    body: bytes = message.SerializeToString(deterministic=True)
    return body


def leg_fields(leg: dict[str, Any] | None) -> list[Value]:
    leg = leg or {}
    return [leg.get("id"), leg.get("symbol"), leg.get("px") or None]


@given(content=CONTENT)
def test_every_field_that_protobuf_wrote(
    orders: MessageType, classes: dict[str, Any], content: dict[str, Any]
) -> None:
    raw: bytes | None = content.get("raw")
    expected: dict[str, Value] = {
        "/id": content["id"],
        "/qty": content.get("qty", 100),
        "/note": content.get("note", 'a"b\\\x01é'),
        "/side": content.get("side"),
        "/main": True if "main" in content else None,
        "/legs/id": [leg["id"] for leg in content.get("legs", [])] or None,
        "/legs[1]/id": ([leg["id"] for leg in content.get("legs", [])] + [None] * 2)[1],
        "/prices/IBM": content.get("prices", {}).get("IBM"),
        "/tags": content.get("tags") or None,
        "/card": content.get("card"),
        "/raw": None if raw is None else raw.decode("utf-8", "surrogateescape"),
        "/from": content.get("from"),
    }
    legs = {"/main": content.get("main"), "/by_id/-1": content.get("by_id", {}).get(-1)}
    for prefix, leg in legs.items():
        values = leg_fields(leg)
        expected |= dict(
            zip([f"{prefix}/{n}" for n in ("id", "symbol", "px")], values, strict=True)
        )
    assert extract(orders, order(classes, content), *expected) == tuple(expected.values())


@given(first=CONTENT, second=CONTENT)
def test_difference_merges_back(
    orders: MessageType, classes: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    previous = order(classes, first)
    merged = orders.merge(previous, order(classes, second))
    difference = orders.differ(previous, merged, [])
    read = classes["shop.v1.Order"].FromString
    back = orders.merge(previous, difference) if difference else previous
    assert read(back) == read(merged)


MAIN = {"id": 1, "symbol": "IBM", "px": [1.0]}
FULL = {
    "id": "o1",
    "qty": 5,
    "main": MAIN,
    "legs": [{"id": 1}],
    "prices": {"IBM": 1.5},
    "tags": ["x"],
}


@pytest.mark.parametrize(
    ("delta", "changed"),
    [
        ({"id": "o1"}, {}),
        ({"id": "o1", "qty": 6}, {"qty": 6}),
        ({"id": "o1", "qty": 100}, {"qty": 100}),  # the default, when it is really there
        ({"id": "o1", "note": "n"}, {"note": "n"}),
        ({"id": "o1", "tags": ["y", "z"]}, {"tags": ["y", "z"]}),
        ({"id": "o1", "legs": [{"id": 7}]}, {"legs": [{"id": 7}]}),
        ({"id": "o1", "main": {"id": 2}}, {"main": {**MAIN, "id": 2}}),
        ({"id": "o1", "main": {"id": 1, "px": [2.0]}}, {"main": {**MAIN, "px": [2.0]}}),
        ({"id": "o1", "prices": {"MS": 2.5}}, {"prices": {"IBM": 1.5, "MS": 2.5}}),
    ],
)
def test_merge(
    orders: MessageType, classes: dict[str, Any], delta: dict[str, Any], changed: dict[str, Any]
) -> None:
    merged = orders.merge(order(classes, FULL), order(classes, delta))
    assert merged == order(classes, {**FULL, **changed})


@pytest.mark.parametrize(
    ("change", "keep", "difference"),
    [
        ({}, "/id", None),
        ({"qty": 6}, "/id", {"id": "o1", "qty": 6}),
        ({"qty": 6}, "/tags", {"id": "o1", "qty": 6, "tags": ["x"]}),
        ({"tags": ["x", "y"]}, "/id", {"id": "o1", "tags": ["x", "y"]}),
        (
            {"main": {"id": 1, "symbol": "MS"}},
            "/id",
            {"id": "o1", "main": {"id": 1, "symbol": "MS"}},
        ),
        ({"prices": {"IBM": 1.5, "MS": 2.0}}, "/id", {"id": "o1", "prices": {"MS": 2.0}}),
        ({"card": 7}, "/main/symbol", {"id": "o1", "card": 7, "main": {"id": 1, "symbol": "IBM"}}),
    ],
)
def test_differ_keeps_keys_and_required_fields(
    orders: MessageType,
    classes: dict[str, Any],
    change: dict[str, Any],
    keep: str,
    difference: dict[str, Any] | None,
) -> None:
    current = order(classes, {**FULL, **change})
    body = orders.differ(order(classes, FULL), current, [parse_path(keep)])
    assert body == (difference and order(classes, difference))


def test_unknown_fields_and_extensions_survive_a_merge(orders: MessageType) -> None:
    stored = b"\x0a\x01x\xa0\x06\x05"
    unknown = b"\xf8\x3e\x01"
    assert orders.merge(stored + unknown, b"\x10\x05") == b"\x0a\x01x\x10\x05\xa0\x06\x05" + unknown
    assert orders.merge(stored, b"\xa0\x06\x07") == b"\x0a\x01x\xa0\x06\x07"
    assert orders.differ(stored, b"\x0a\x01x\xa0\x06\x07" + unknown, []) == b"\x0a\x01x\xa0\x06\x07"
    assert orders.differ(stored, stored + unknown, []) is None


@pytest.mark.parametrize(
    ("selection", "kept"),
    [
        ("+/", ["symbol", "px", "children", "named", "at"]),
        ("-/,+/symbol", ["symbol"]),
        ("-/children,-/named", ["symbol", "px", "at"]),
        ("-/,+/absent", []),
    ],
)
def test_select_whole_fields(
    ticks: MessageType, classes: dict[str, Any], selection: str, kept: list[str]
) -> None:
    tick = classes["feed.Tick"]
    inner = tick(symbol="c", px=2.0)
    fields = {"symbol": "s", "px": 1.5, "children": [inner], "named": {"k": inner}}
    fields["at"] = {"seconds": 5}
    body = tick(**fields).SerializeToString()
    selected = tick(**{name: fields[name] for name in kept})
    assert tick.FromString(ticks.select(body, parse_selection(selection))) == selected


def test_select_inside_messages(ticks: MessageType, classes: dict[str, Any]) -> None:
    tick = classes["feed.Tick"]
    inner = tick(symbol="c", px=2.0)
    body = tick(
        symbol="s", of=inner, children=[inner, tick(px=1.0)], named={"k": inner, "l": inner}
    )
    selection = parse_selection("-/,+/of/px,+/children/symbol,+/named/k/px,+/at/seconds")
    selected = tick(of=tick(px=2.0), children=[tick(symbol="c")], named={"k": tick(px=2.0)})
    assert tick.FromString(ticks.select(body.SerializeToString(), selection)) == selected
    unknown = b"\xf8\x3e\x01"
    assert ticks.select(unknown, parse_selection("-/,+/symbol")) == b""
    assert ticks.select(unknown, parse_selection("-/symbol")) == unknown


def test_capabilities_follow_the_syntax(orders: MessageType, ticks: MessageType) -> None:
    two, three = orders.capabilities, ticks.capabilities
    assert (two.delta, two.select, two.build) == (True, False, False)
    assert (three.delta, three.select, three.build) == (False, True, False)
    assert orders.select(b"anything", parse_selection("-/id")) == b"anything"
    assert ticks.merge(b"old", b"new") == b"new"
    assert ticks.differ(b"old", b"new", []) == b"new"
    for kind in (orders, ticks):
        with pytest.raises(BodyError):
            kind.update(b"", [(("id",), "x")])


def test_body_that_cannot_be_rebuilt(orders: MessageType, ticks: MessageType) -> None:
    with pytest.raises(BodyError, match=r"protobuf: the body is no shop\.v1\.Order"):
        orders.merge(b"\x0a\x05x", b"")
    with pytest.raises(BodyError, match=r"no feed\.Tick"):
        ticks.select(b"\xff", parse_selection("-/px"))


@given(content=CONTENT, data=st.data())
def test_damage_is_survived(
    orders: MessageType,
    ticks: MessageType,
    classes: dict[str, Any],
    content: dict[str, Any],
    data: Any,
) -> None:
    body = order(classes, content)
    broken = data.draw(damaged(st.just(body)))
    survives(orders, broken, body)
    survives(ticks, broken, body)


def test_nesting_is_bounded(orders: MessageType) -> None:
    body = b""
    for _ in range(3000):
        length = len(body)
        varint = bytes([length & 127 | 128, length >> 7 & 127 | 128, length >> 14])
        body = b"\x72" + varint + body
    survives(orders, body, b"\x0a\x01x")
    assert orders.extractor([("a",) * 3000])(b"") == (None,)


def test_a_very_long_path_is_no_trouble(orders: MessageType) -> None:
    assert orders.extractor([("a",) * 5000])(b"\x72\x00") == (None,)


@pytest.mark.parametrize(
    ("changed", "option", "message"),
    [
        ({"ProtoPath": []}, "ProtoPath", "at least one is required"),
        (
            {"ProtoPath": ["/no/such/dir"]},
            "ProtoPath",
            "'/no/such/dir': there is no such directory",
        ),
        ({"ProtoPath": ["a;"]}, "ProtoPath", "'a;': there is no such directory"),
        ({"ProtoFile": []}, "ProtoFile", "required: the .proto file"),
        ({"ProtoFile": ["a", "b"]}, "ProtoFile", "given 2 times"),
        ({"ProtoFile": ["no.proto"]}, "ProtoFile", "no.proto is in no ProtoPath: (no alias) = "),
        ({"ProtoFile": ["common/orders.proto"]}, "ProtoFile", "common/orders.proto is in no Proto"),
        ({"ProtoFile": ["broken.proto"]}, "ProtoFile", 'broken.proto:2:25: Expected ";".'),
        ({"ProtoFile": ["lost.proto"]}, "ProtoFile", "gone/x.proto: File not found"),
        ({"ProtoFile": ["edition.proto"], "Type": ["M"]}, "ProtoFile", "uses an edition"),
        ({"Type": []}, "Type", "required: the message with its package"),
        ({"Type": ["Order"]}, "Type", "'Order', expected its name with the package; did you mean "),
        ({"Type": ["shop.v1.Ordr"]}, "Type", "did you mean shop.v1.Order?"),
        ({"Type": ["shop.v1.Order.PricesEntry"]}, "Type", "there is no message"),
        ({"Typ": ["x"]}, "Typ", "this message type has no such option; did you mean Type?"),
    ],
)
def test_configuration_that_is_refused(
    protos: FilePath, changed: dict[str, list[str]], option: str, message: str
) -> None:
    given_options = {**options(protos, "orders.proto", "shop.v1.Order"), **changed}
    with pytest.raises(MessageTypeError) as caught:
        message_type("protobuf", **given_options)
    assert caught.value.option == option
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("paths", "file"),
    [
        (["{}/shared"], "side.proto"),
        ([";{}/shared"], "side.proto"),
        (["common;{}/shared"], "common/side.proto"),
        ([" common ; {}/shared "], "common/side.proto"),
        (["other;{}", "common;{}/shared"], "other/orders.proto"),
    ],
)
def test_aliases(protos: FilePath, paths: list[str], file: str) -> None:
    name = "shop.v1.Leg" if "orders" in file else "common.Holder"
    kind = message_type(
        "protobuf", ProtoPath=[path.format(protos) for path in paths], ProtoFile=[file], Type=[name]
    )
    assert kind.capabilities.delta  # no syntax is proto2
    assert extract(kind, b"\x08\x02", "/side", "/id") in [(2, None), (None, 2)]
