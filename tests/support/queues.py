"""Queues to test with, and what their consumers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.raw import RawPeer
from tests.support.server import RunningServer

Header = dict[str, Any]

_ELEMENTS = """
<TransactionLog>
  <JournalDirectory>./journal</JournalDirectory>
  <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
  <MinJournalSize>10MB</MinJournalSize>
  <Topic><Name>^in-</Name><MessageType>json</MessageType></Topic>
  {recorded}
</TransactionLog>
<SOW>{queues}{others}</SOW>
"""


Options = Mapping[str, str | int]
"""The elements of a queue, by their names; `element` is that of the queue itself."""


def queue(name: str, options: Options) -> str:
    """The element of a queue, fed by `in-NAME` unless it is said otherwise.

    Its backlog is large, so that it does not get in the way where it is not the subject.
    """
    defaults: Options = {"UnderlyingTopic": f"in-{name}", "MaxPerSubscriptionBacklog": 100}
    given = {**defaults, **options}
    element = given.pop("element", "Queue")
    text = "".join(f"<{key}>{value}</{key}>" for key, value in given.items())
    return f"<{element}><Name>{name}</Name><MessageType>json</MessageType>{text}</{element}>"


def elements(queues: Mapping[str, Options], others: str = "", recorded: str = "") -> str:
    """The elements of a configuration with queues.

    Args:
        queues: the options of each, by its name.
        others: further elements of the SOW.
        recorded: further elements of the transaction log.
    """
    text = "".join(queue(name, options) for name, options in queues.items())
    return _ELEMENTS.format(queues=text, others=others, recorded=recorded)


def put(server: RunningServer, topic: str, bodies: Iterable[bytes | str | int]) -> None:
    """Publish messages, and wait until they are recorded; numbers stand for messages `{"n":…}`."""
    with server.log_on("publisher") as peer:
        for body in bodies:
            if isinstance(body, int):
                body = f'{{"n":{body}}}'
            peer.publish(topic, body if isinstance(body, bytes) else body.encode())
        peer.flush()


def make_safe(server: RunningServer) -> None:
    """Wait until everything that has been done is on stable storage."""
    with server.log_on("safe") as peer:
        assert peer.ask({"c": "flush", "cid": "f", "a": "persisted"})["status"] == "success"


def consume(peer: RawPeer, name: str, backlog: int | None = 100, **keys: Any) -> Header:
    """Consume from a queue, and give the ack; None leaves the backlog to the server."""
    options = [] if backlog is None else [f"max_backlog={backlog}"]
    if "o" in keys:
        options.append(keys.pop("o"))
    ack = peer.subscribe(name, keys.pop("sub_id", "s"), o=",".join(options), **keys)
    assert ack["status"] == "success", ack
    return ack


def take(peer: RawPeer, count: int) -> list[tuple[Header, bytes]]:
    """So many messages, one after the other."""
    return [peer.receive() for _ in range(count)]


def numbers(messages: Iterable[tuple[Header, bytes]]) -> list[int]:
    """What `put` gave numbers for."""
    return [int(body.removeprefix(b'{"n":').removesuffix(b"}")) for _, body in messages]


def bookmarks(messages: Iterable[tuple[Header, bytes]]) -> str:
    """The bookmarks of messages, as an acknowledgement lists them."""
    return ",".join(header["bm"] for header, _ in messages)


def done(peer: RawPeer, name: str, **keys: Any) -> int:
    """Acknowledge messages, and give how many it took effect on."""
    ack = peer.ask({"c": "sow_delete", "cid": "d", "t": name, "a": "stats"} | keys)
    assert (ack["c"], ack["a"], ack["status"]) == ("ack", "stats", "success"), ack
    return int(ack["records_deleted"])
