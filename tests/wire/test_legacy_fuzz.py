"""Whatever a peer of a legacy protocol sends, the engine lives, and answers are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amperage.wire.legacy.dialect import Dialect
from amperage.wire.legacy.envelope import EnvelopeDialect
from amperage.wire.legacy.fields import FIELDS
from amperage.wire.legacy.fix import FixDialect
from amperage.wire.legacy.peer import LegacyPeer
from server.engine.connection_context import ConnectionHandle
from tests.engine.support import Core
from tests.support.legacy import with_length

DIALECTS: dict[str, Dialect] = {"fix": FixDialect(), "xml": EnvelopeDialect(namespaces=True)}
COMMANDS = ["logon", "publish", "p", "subscribe", "sow_and_subscribe", "unsubscribe", "heartbeat"]
VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.sampled_from(
    [
        "true",
        "start",
        "1",
        "all",
        "replace",
        "json",
        "processed,completed",
        "<&>",
        "a\x01b\x02",
        "}",
    ]
)
HEADERS = st.fixed_dictionaries(
    {"c": st.sampled_from(COMMANDS)},
    optional={field.key: VALUES for field in FIELDS if field.key != "c"},
)


def feed_core(dialect: Dialect, chunks: list[bytes]) -> bytes:
    """Feed a session of the engine, and give what it answers."""
    core = Core()
    peer = LegacyPeer(dialect)
    out: list[bytes] = []
    link = ConnectionHandle("test", lambda data: out.append(peer.encode(data)), lambda: None)
    session = core.engine.begin_session(core.entrance, link, peer)
    for chunk in chunks:
        session.input.feed(chunk)
        core.engine.flush()
    session.input.on_connection_lost()
    return b"".join(out)


@pytest.mark.parametrize("name", DIALECTS)
@given(chunks=st.lists(st.binary(max_size=60), max_size=4))
def test_random_messages(name: str, chunks: list[bytes]) -> None:
    """Bytes that mean nothing, with and without a length before them."""
    feed_core(DIALECTS[name], chunks)
    feed_core(DIALECTS[name], [with_length(chunk) for chunk in chunks])


@pytest.mark.parametrize("name", DIALECTS)
@given(st.lists(st.tuples(HEADERS, st.binary(max_size=20)), max_size=6))
def test_random_commands(name: str, commands: list[tuple[dict[str, str], bytes]]) -> None:
    """Commands with all kinds of fields; every answer is a message of the protocol."""
    dialect = DIALECTS[name]
    logon = dialect.write([("c", "logon"), ("mt", "json"), ("a", "processed")]) + dialect.tail
    sent = [dialect.write(fields.items()) + body + dialect.tail for fields, body in commands]
    answers = feed_core(dialect, [with_length(message) for message in [logon, *sent]])
    reader = LegacyPeer(dialect)
    assert reader.feed(answers) or not answers


@pytest.mark.parametrize("name", DIALECTS)
@given(
    fields=HEADERS,
    damage=st.lists(st.tuples(st.integers(0, 1000), st.binary(max_size=3)), max_size=4),
    encoding=st.sampled_from(["latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037"]),
)
def test_damaged_commands(
    name: str, fields: dict[str, str], damage: list[tuple[int, bytes]], encoding: str
) -> None:
    """Commands with a few bytes replaced, or in another encoding: a frame, or one error."""
    dialect = DIALECTS[name]
    message = dialect.write(fields.items()) + b"<a>1</a>" + dialect.tail
    for place, replacement in damage:
        at = place % len(message)
        message = message[:at] + replacement + message[at + 1 :]
        message = message or b"x"
    message = message.decode("latin-1").encode(encoding)
    peer = LegacyPeer(dialect)
    frames = peer.feed(with_length(message))
    assert len(frames) == (peer.error is None)
