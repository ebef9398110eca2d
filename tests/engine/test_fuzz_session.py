"""Whatever a peer sends, the engine lives, and others are served."""

from __future__ import annotations

import json
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.commands.dispatch import AFTER_LOGON, BEFORE_LOGON
from tests.engine.support import Core
from tests.support.chances import examples

KEYS = ["c", "cid", "t", "f", "o", "a", "s", "k", "x", "e", "bm", "bs", "sub_id", "query_id", "mt"]
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["replace", "start,0", "all", "a(b", "^a.*", "processed", "1", "[", "]=,"])
    | st.lists(st.integers(), max_size=2)
)
COMMANDS = st.sampled_from([*AFTER_LOGON, *BEFORE_LOGON]) | st.text(max_size=8)
HEADERS = st.builds(
    lambda command, keys: {"c": command} | keys,
    COMMANDS,
    st.dictionaries(st.sampled_from(KEYS[1:]), VALUES, max_size=6),
)


def serves_others(core: Core) -> bool:
    """Whether a message still gets from one well-behaved peer to another."""
    publisher, subscriber = core.log_on("publisher"), core.log_on("subscriber")
    subscriber.send({"c": "subscribe", "sub_id": "1", "t": "good"})
    publisher.send({"c": "p", "t": "good"}, b"{}")
    return [body for _, body in subscriber.take_frames()] == [b"{}"]


@settings(max_examples=examples(100, 20))
@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_random_bytes(chunks: list[bytes], logged_on: bool) -> None:
    """Bytes that mean nothing."""
    core = Core()
    offender = core.log_on("offender") if logged_on else core.connect()
    for chunk in chunks:
        offender.send_bytes(chunk)
    offender.leave()
    assert serves_others(core)


@settings(max_examples=examples(100, 20))
@given(
    st.lists(st.tuples(HEADERS, st.binary(max_size=10)), max_size=8),
    st.booleans(),
    st.sampled_from([None, "json"]),
    st.booleans(),
)
def test_random_commands(
    commands: list[tuple[dict[str, Any], bytes]],
    require_logon: bool,
    message_type: str | None,
    logged_on: bool,
) -> None:
    """Commands with keys and values that they should not have, in any state of the session."""
    core = Core(require_logon=require_logon, message_type=message_type)
    offender = core.log_on("offender") if logged_on else core.connect()
    for header, body in commands:
        content = json.dumps(header).encode() + body
        offender.send_bytes(struct.pack(">I", len(content)) + content)
    offender.take_frames()
    offender.leave()
    assert serves_others(core)
