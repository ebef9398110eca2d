"""A consumer that does not read, of a queue whose leases end soon."""

from __future__ import annotations

import signal

from tests.support.queues import bookmarks, consume, done, elements, put, take
from tests.support.server import RunningServer, module_server
from tests.support.waiting import comes_true

_COUNT = 100
_BODY = b"x" * 100_000

QUEUE = elements({"short": {"LeasePeriod": "200ms"}})
server = module_server(elements=f"<MiniDumpDirectory>./dumps</MiniDumpDirectory>{QUEUE}")


def test_it_gets_no_more_copies_until_it_has_read(server: RunningServer) -> None:
    """Others get the messages meanwhile, and it gets what comes later."""
    put(server, "in-short", [_BODY] * _COUNT)
    with server.log_on("stuck") as stuck, server.log_on("other") as other:
        stuck.send({"c": "subscribe", "t": "short", "sub_id": "s", "o": "max_backlog=100"})

        def is_left_alone() -> bool:
            server.process.send_signal(signal.SIGQUIT)
            return "stuck does not read what it was sent" in server.log()

        assert comes_true(is_left_alone)
        consume(other, "short")
        assert len({bookmarks([message]) for message in take(other, _COUNT)}) == _COUNT
        done(other, "short", filter="1=1")
        other.ask({"c": "unsubscribe", "cid": "u", "sub_id": "s", "a": "processed"})
        put(server, "in-short", [1])
        while stuck.receive()[1] == _BODY:
            pass
