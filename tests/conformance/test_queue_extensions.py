"""What queues have beyond those of AMPS."""

from __future__ import annotations

from tests.support.raw import RawPeer
from tests.support.server import RunningServer, module_server
from tests.support.sow import query

QUEUES = {
    "patient": "<RetryDelay>1h</RetryDelay>",
    "brisk": "<RetryDelay>1h</RetryDelay><MaxRetryDelay>1ms</MaxRetryDelay>",
}

server = module_server(
    "<TransactionLog><JournalDirectory>./journal</JournalDirectory>"
    "<PreallocatedJournalFiles>1</PreallocatedJournalFiles><MinJournalSize>10MB</MinJournalSize>"
    + "".join(
        f"<Topic><Name>{name}</Name><MessageType>json</MessageType></Topic>" for name in QUEUES
    )
    + "</TransactionLog><SOW>"
    + "".join(
        f"<LocalQueue><Name>{name}</Name><MessageType>json</MessageType>{more}</LocalQueue>"
        for name, more in QUEUES.items()
    )
    + "</SOW>"
)


def hand_back(peer: RawPeer, queue: str, mark: str, options: str = "cancel") -> None:
    """Cancel a message."""
    header = {"c": "sow_delete", "cid": "d", "t": queue, "bm": mark, "o": options}
    assert peer.ask(header | {"a": "processed"})["status"] == "success"


def test_a_message_that_is_handed_back_stays_away(server: RunningServer) -> None:
    """For RetryDelay, and out of sight; the consumer may say that it is to come at once."""
    with server.log_on("c") as peer:
        peer.publish("patient", b'{"n":1}')
        peer.publish("patient", b'{"n":2}')
        peer.flush()
        peer.subscribe("patient", "1")
        first = peer.receive()[0]["bm"]
        hand_back(peer, "patient", first)
        header, body = peer.receive()
        assert body == b'{"n":2}'
        assert query(peer, "patient").messages == []
        hand_back(peer, "patient", header["bm"], "cancel,delay=0s")
        again, body = peer.receive()
        assert (again["bm"], body) == (header["bm"], b'{"n":2}')


def test_the_delay_has_a_limit(server: RunningServer) -> None:
    with server.log_on("c") as peer:
        peer.publish("brisk", b"{}")
        peer.flush()
        peer.subscribe("brisk", "1")
        mark = peer.receive()[0]["bm"]
        hand_back(peer, "brisk", mark)
        assert peer.receive()[0]["bm"] == mark
