"""A consumer that does not read, of a queue whose leases end soon."""

from __future__ import annotations

import signal

from tests.support.queues import consume, elements, put
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.waiting import comes_true

_COUNT = 100
_BODY = b"x" * 100_000

QUEUES = elements({name: {"LeasePeriod": "200ms"} for name in ("short", "replaced")})
server = module_server(elements=f"<MiniDumpDirectory>./dumps</MiniDumpDirectory>{QUEUES}")


def is_left_alone(server: RunningServer, name: str) -> bool:
    """Whether a consumer is sent nothing more because it does not read, now or soon."""

    def is_said() -> bool:
        server.process.send_signal(signal.SIGQUIT)
        return f"{name} does not read what it was sent" in server.log()

    return comes_true(is_said)


def ask_among_messages(peer: RawPeer, header: dict[str, str]) -> None:
    """Send a command, and pass over messages until its ack comes."""
    peer.send(header | {"cid": "c"})
    while (ack := peer.receive()[0])["c"] != "ack":
        pass
    assert (ack["cid"], ack["status"]) == ("c", "success")


def test_it_gets_no_more_copies_until_it_has_read(server: RunningServer) -> None:
    """Others get the messages meanwhile, and it gets what comes later."""
    put(server, "in-short", [_BODY] * _COUNT)
    with server.log_on("stuck") as stuck, server.log_on("other") as other:
        stuck.send({"c": "subscribe", "t": "short", "sub_id": "s", "o": "max_backlog=100"})
        assert is_left_alone(server, "stuck")
        consume(other, "short")
        found = set[str]()
        while len(found) < _COUNT:  # it may be slower than its own leases, and get some again
            found.add(other.receive()[0]["bm"])
        ask_among_messages(other, {"c": "sow_delete", "t": "short", "filter": "1=1", "a": "stats"})
        ask_among_messages(other, {"c": "unsubscribe", "sub_id": "s", "a": "processed"})
        put(server, "in-short", [1])
        while stuck.receive()[1] == _BODY:
            pass


def test_its_backlog_is_what_it_was(server: RunningServer) -> None:
    """Who replaces a subscription without having read is told of a backlog as everybody is."""
    put(server, "in-replaced", [_BODY] * _COUNT)
    with server.log_on("slow") as peer:
        command = {"c": "subscribe", "t": "replaced", "sub_id": "s"}
        peer.send(command | {"o": "max_backlog=100"})
        assert is_left_alone(server, "slow")
        peer.send(command | {"cid": "r", "o": "replace,max_backlog=40", "a": "processed"})
        assert server.logs("replace,max_backlog=40")
        while (header := peer.receive()[0])["c"] != "ack":
            pass
        assert (header["cid"], header["opts"]) == ("r", "max_backlog=40")
