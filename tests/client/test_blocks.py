"""What comes as blocks is what comes message by message, however headers are written."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from amperage.client import ProtocolError
from amperage.client.block_client import BlockClient
from amperage.client.blocks import MessageBlock, block_of
from amperage.client.message import Message
from amperage.client.pending_requests import StreamInbox
from amperage.client.protocol import ClientProtocol
from amperage.wire.header import Header
from amperage.wire.message_blocks import FIELDS
from tests.support.server import RunningServer, module_server
from tests.support.waiting import WAIT_SECONDS

Seen = tuple[bytes, tuple[str | None, ...]]

server = module_server(
    elements="""
    <SOW><Topic><Name>records</Name><MessageType>json</MessageType><Key>/k</Key>
      <Durability>transient</Durability></Topic></SOW>
    <TransactionLog>
      <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
      <Topic><Name>log</Name><MessageType>json</MessageType></Topic>
    </TransactionLog>
    """
)

TEXTS = st.one_of(
    st.text("0123456789|:T.Z", max_size=24),
    st.text(max_size=4),
    st.sampled_from(["}", "{", 'a"b', "\\", ",", "\u00e9", "\u007f", "\u0000", "x" * 1100, ""]),
)
SPARE = st.dictionaries(
    st.sampled_from(["s", "e", "unknown", "query_id", "lease", "status"]),
    st.one_of(st.integers(0, 99), TEXTS.filter(lambda text: text != "")),
    max_size=2,
)
KEYS = ("t", "k", "bm", "ts", "x", "user_id")


@st.composite
def headers(draw: st.DrawFn) -> dict[str, Any]:
    """Header fields, in any order."""
    values: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, TEXTS)))
    values |= {key: draw(st.none() | TEXTS) for key in draw(st.sets(st.sampled_from(KEYS)))}
    return values


def encoded(values: dict[str, Any], spaced: bool) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(values, separators=separators, ensure_ascii=spaced).encode()


@st.composite
def publications(draw: st.DrawFn) -> bytes:
    values = draw(headers()) | {"c": draw(st.sampled_from(["p", "publish", "oof", "heartbeat"]))}
    values[draw(st.sampled_from(["sids", "sub_id"]))] = draw(
        st.sampled_from(["1", "1", "1", "2", "1,2", "unknown"])
    )
    order = draw(st.permutations(sorted(values)))
    return frame_of(
        encoded({key: values[key] for key in order}, draw(st.booleans())),
        draw(st.binary(max_size=9)),
    )


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    content = b""
    for values in draw(st.lists(headers(), max_size=4)):
        body = draw(st.binary(max_size=9))
        length = draw(st.sampled_from([len(body)] * 8 + [str(len(body)), len(body) + 1, -1, 2**40]))
        content += encoded(values | {"l": length}, draw(st.booleans())) + body
    content += draw(st.sampled_from([b""] * 5 + [b"{}", b"{", b'{"k":"1"}rest', b"\0"]))
    common = draw(st.fixed_dictionaries({}, optional={"t": TEXTS, "ts": TEXTS}))
    return frame_of(encoded({"c": "sow", "query_id": "1"} | common, spaced=False), content)


def frame_of(header: bytes, body: bytes) -> bytes:
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def opened(*, in_blocks: bool) -> tuple[ClientProtocol, StreamInbox]:
    """A protocol with two subscriptions, of which the first is looked at."""
    protocol = ClientProtocol()
    first, _ = (protocol.sow_and_subscribe("t") for _ in range(2))
    if in_blocks:
        protocol.deliver_as_blocks(first)
    assert first.inbox is not None
    return protocol, first.inbox


def received(protocol: ClientProtocol, parts: Iterable[bytes]) -> str | None:
    try:
        for part in parts:
            protocol.receive(part)
    except ProtocolError as error:
        return str(error)
    return None


def seen_of(messages: Iterable[Message]) -> list[Seen]:
    return [
        (message.body, tuple(text_of(getattr(message.header, name)) for name in FIELDS))
        for message in messages
    ]


def text_of(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def seen_in(blocks: Sequence[MessageBlock]) -> list[Seen]:
    return [one for block in blocks for one in messages_of(block)]


def messages_of(block: MessageBlock) -> list[Seen]:
    columns = [texts_of(block, name) for name in FIELDS]
    starts, ends = array("q", block.starts), array("q", block.ends)
    return [
        (block.data[start:end], tuple(column[row] for column in columns))
        for row, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def texts_of(block: MessageBlock, name: str) -> list[str | None]:
    common = block.common.get(name)
    if name not in block.texts:
        return [common] * len(block)
    valid, offsets, text = block.texts[name]
    borders = array("i", offsets)
    return [
        text[borders[row] : borders[row + 1]].decode() if is_there else common
        for row, is_there in enumerate(valid)
    ]


@given(st.lists(publications() | batches(), max_size=4), st.integers(1, 200))
@example([frame_of(b'{"c":"p","sub_id":"1","bm":"7|1|","bm":"7|2|"}', b"{}")], 99)
@example([frame_of(b'{"c":"p","sub_id":"1","lp":"20s"}', b"{}")], 99)
@example([frame_of(b'{"c":"p","sub_id":"1"', b"")], 99)
@example([frame_of(b'{"c":"sow","query_id":"1"}', b'{"k":"1","l":"2"}{}{"k":5,"l":0}')], 99)
def test_blocks_have_what_messages_have(frames: list[bytes], size: int) -> None:
    data = b"".join(frames)
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    plain, messages = opened(in_blocks=False)
    packed, blocks = opened(in_blocks=True)
    problem = received(plain, parts)
    assert received(packed, parts) == problem
    assert blocks.blocks is not None
    found, expected = seen_in(list(blocks.blocks)), seen_of(messages.messages)
    # Of a batch that breaks off, what stands before is not given.
    assert found == (expected if problem is None else expected[: len(found)])
    assert blocks.message_count == len(found)


def test_a_block_can_be_made_of_messages() -> None:
    messages = [
        Message(Header(topic="t", sow_key="1"), b"abc"),
        Message(Header(bookmark="7|1|", correlation_id="\u00e9", expiration=30), b""),
    ]
    assert messages_of(block_of(messages)) == seen_of(messages)
    assert messages_of(block_of([])) == []


def test_queries_and_replays_come_as_blocks(server: RunningServer) -> None:
    """Everything that was published is in them, in order; then they end."""
    bodies = [b'{"k":%d}' % number for number in range(2500)]
    with BlockClient(timeout=WAIT_SECONDS) as client:
        client.connect(f"tcp://127.0.0.1:{server.port}/amps/json")
        client.logon()
        for topic in ("records", "log"):
            client.publish_all(topic, bodies)
            client.confirmed_publish(topic, b'{"k":-1}', "processed")
        query = client.query_blocks("records", batch_size=100, options="timestamp")
        found = []
        while blocks := query.blocks(WAIT_SECONDS):
            found += seen_in(blocks)
        assert sorted(body for body, _ in found) == sorted([*bodies, b'{"k":-1}'])
        assert all(key and moment for _, (_, key, _, moment, *_) in found)
        replay = client.replay_blocks("log", "0", acks=("completed",))
        found = []
        while blocks := replay.blocks(WAIT_SECONDS):
            found += seen_in(blocks)
        assert [body for body, _ in found] == [*bodies, b'{"k":-1}']
        ended = replay.next(WAIT_SECONDS)
        assert ended is not None
        assert ended.header.acks == "completed"
