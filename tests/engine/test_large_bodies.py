"""Large bodies are handed to all subscribers as they are: none of them is copied."""

from __future__ import annotations

import pytest

from server.engine.connection_context import ConnectionHandle
from server.engine.session import Session
from tests.engine.support import Core
from tests.support.raw import frame

BODY = b'{"x":"%s"}' % (b"x" * 2_000_000)


class Subscriber:
    """A peer that keeps what it gets in the pieces in which it comes."""

    def __init__(self, core: Core, *, takes_parts: bool) -> None:
        self.pieces: list[bytes] = []
        link = ConnectionHandle("test", self.pieces.append, lambda: None, takes_parts=takes_parts)
        self.session: Session = core.engine.begin_session(core.entrance, link)
        for header in (
            {"c": "logon", "client_name": f"subscriber {id(self)}", "mt": "json"},
            {"c": "subscribe", "t": "large", "sub_id": "s"},
        ):
            self.session.input.feed(frame(header))
        core.engine.flush()
        self.pieces.clear()


@pytest.mark.parametrize("takes_parts", [True, False])
def test_subscribers_share_a_large_body(takes_parts: bool) -> None:
    core = Core()
    subscribers = [Subscriber(core, takes_parts=takes_parts) for _ in range(3)]
    publisher = core.log_on("publisher")
    before = [one.session.outbox.messages_out for one in subscribers]
    for body in (b"{}", BODY, b"[]"):
        sent = frame({"c": "publish", "t": "large"}, body)
        publisher.send_bytes(sent[:50])
        publisher.send_bytes(sent[50:])
    core.engine.flush()
    streams = [b"".join(one.pieces) for one in subscribers]
    head = b'{"c":"p","t":"large","l":%d,"sids":"s"}'
    expected = b"".join(
        (len(head % len(body)) + len(body)).to_bytes(4, "big") + head % len(body) + body
        for body in (b"{}", BODY, b"[]")
    )
    assert streams == [expected] * 3
    assert [one.session.outbox.messages_out for one in subscribers] == [n + 3 for n in before]
    large = [piece for one in subscribers for piece in one.pieces if len(piece) == len(BODY)]
    assert len(large) == (3 if takes_parts else 0)
    assert len({id(piece) for piece in large}) == takes_parts
