"""Clients that do not read: kept on disk, then disconnected, and nobody else notices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.server import RunningServer, ServerEnded, running_server

LIMITS = """
<MessageMemoryLimit>2MB</MessageMemoryLimit>
<MessageDiskLimit>40MB</MessageDiskLimit>
<MessageDiskPath>{directory}</MessageDiskPath>
<ClientMaxCapacity>50%</ClientMaxCapacity>
<SOW><Topic>
  <Name>many</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability>
</Topic></SOW>
<Actions>
  <Action>
    <On><Module>amps-action-on-offline-start</Module></On>
    <Do><Module>amps-action-do-echo-message</Module><Options>
      <Message>slow: {{{{AMPS_CLIENT_NAME}}}} at {{{{AMPS_CONNECTION_NAME}}}}</Message>
    </Options></Do>
  </Action>
  <Action>
    <On><Module>amps-action-on-offline-stop</Module></On>
    <Do><Module>amps-action-do-echo-message</Module><Options>
      <Message>back: {{{{AMPS_CLIENT_NAME}}}} at {{{{AMPS_CONNECTION_NAME}}}}</Message>
    </Options></Do>
  </Action>
</Actions>
"""
BODY = b"x" * 100_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with small limits."""
    directory = tmp_path_factory.mktemp("server")
    slow = directory / "data" / "slow"  # not there yet
    with running_server(directory, elements=LIMITS.format(directory=slow)) as running:
        yield running


def resident_bytes(server: RunningServer) -> int:
    """The memory of the server process."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


def test_a_client_that_pauses_gets_everything_from_disk(server: RunningServer) -> None:
    """What did not fit in memory waited in a file; nothing is lost, the order is kept."""
    with server.log_on("publisher") as publisher, server.log_on("pausing") as pausing:
        pausing.subscribe("paused", "1")
        sent = [b"%d %s" % (number, BODY) for number in range(150)]
        for body in sent:
            publisher.publish("paused", body)
        publisher.flush()
        assert server.logs("client[pausing] slow consumption detected, offline messages.")
        assert [pausing.receive()[1] for _ in sent] == sent
        assert server.logs("client[pausing] has read all messages")
        for word in ("slow", "back"):  # actions are told, too
            assert server.logs(f"29-0103 {word}: pausing at test-instance-any-tcp-2")
        publisher.publish("paused", b"live again")
        assert pausing.receive()[1] == b"live again"


def test_a_client_that_never_reads_is_disconnected_and_memory_stays_bounded(
    server: RunningServer,
) -> None:
    """Over its share of memory and disk it has to go; a reader beside it gets every message."""
    with (
        server.log_on("publisher") as publisher,
        server.log_on("sleepy") as sleepy,
        server.log_on("reader") as reader,
    ):
        sleepy.subscribe("flood", "1")
        reader.subscribe("flood", "1")
        before = resident_bytes(server)
        for number in range(600):
            publisher.publish("flood", BODY)
            assert reader.receive()[1] == BODY, number
        assert server.logs("client[sleepy] slow consumption detected, offline messages.")
        assert server.logs("client[sleepy] is not consuming messages, disconnecting slow client")
        assert server.logs("client[sleepy] disconnected. Reason: slow client")
        assert resident_bytes(server) - before < 30_000_000


def test_a_client_that_lags_too_long_is_disconnected(tmp_path: Path) -> None:
    """With an age limit, time counts and not only room."""
    limit = "<ClientMessageAgeLimit>1s</ClientMessageAgeLimit>"
    with (
        running_server(tmp_path, elements=limit) as server,
        server.log_on("publisher") as publisher,
        server.log_on("aged") as aged,
    ):
        aged.subscribe("old", "1")
        for _ in range(200):
            publisher.publish("old", BODY)
        publisher.flush()
        assert server.logs("client[aged] is not consuming messages, disconnecting slow client")
        assert aged.is_disconnected()


def test_a_client_that_pages_through_too_much_is_disconnected(server: RunningServer) -> None:
    """What a page is cut from counts; it goes with its last page, or on to who has another one."""

    def page(filter_: str, sub_id: str = "p") -> dict[str, str]:
        header = {"c": "sow_and_subscribe", "cid": sub_id, "sub_id": sub_id, "t": "many"}
        return header | {"f": filter_, "o": "top_n=2,skip_n=1", "a": "completed"}

    with server.log_on("publisher") as publisher, server.log_on("modest") as modest:
        for number in range(12_000):
            publisher.publish("many", b'{"id":%d,"few":%d,"n":1}' % (number, number % 500))
        publisher.flush()
        for _ in range(5):  # one at a time they fit
            for sub_id in ("p", "q"):
                modest.send(page("/id < 2000", sub_id))
                while modest.receive()[0]["c"] != "ack":
                    pass
            for sub_id in ("p", "q"):
                modest.send({"c": "unsubscribe", "sub_id": sub_id})
        with server.log_on("browser") as browser:
            browser.send(page("/id >= 0"))
            assert browser.is_disconnected()
        assert server.logs("client[browser] is not consuming messages")
        modest.flush()


def test_a_list_that_pages_share_counts_in_equal_parts(server: RunningServer) -> None:
    """Any number of clients can have pages of one list, but not each one of a list of its own."""
    command = {"c": "sow_and_subscribe", "t": "many", "f": "/id LIKE '^p'", "sub_id": "1"}
    orders = ("/n", "/n DESC", "/id", "/id DESC")
    with server.log_on("publisher") as publisher, ExitStack() as stack:
        for number in range(2000):
            publisher.publish("many", b'{"id":"p%d","n":%d}' % (number, number))
        publisher.flush()
        peers = [stack.enter_context(server.log_on(f"pager{number}")) for number in range(4)]
        for peer in peers:
            peer.send(command | {"orderby": "/n", "o": "top_n=2,skip_n=1", "a": "completed"})
            while peer.receive()[0]["c"] != "ack":
                pass
        assert all(peer.hears_nothing() for peer in peers)
        for peer, order in zip(peers, orders, strict=True):
            peer.send(command | {"orderby": order, "o": "top_n=2,skip_n=1,replace"})
        assert server.waits_for(
            lambda log: re.search(r"client\[pager\d] is not consuming", log) is not None
        )


def test_a_client_that_aggregates_too_much_is_disconnected(server: RunningServer) -> None:
    """Its groups count, though they cannot go to disk; where they end, so does what they take."""
    options = "projection=[/{0},SUM(/n) AS /n],grouping=[/{0}]"
    with server.log_on("publisher") as publisher:
        for number in range(3000):
            publisher.publish("many", b'{"id":%d,"few":%d,"n":1}' % (number, number % 500))
        publisher.flush()
        for command in ("sow", "sow_and_subscribe"):
            with server.log_on("modest") as modest:
                for _ in range(5):  # one at a time they fit
                    header = {"c": command, "cid": "q", "sub_id": "q", "t": "many"}
                    modest.send(header | {"o": options.format("few"), "a": "completed", "bs": 100})
                    while modest.receive()[0]["c"] != "ack":
                        pass
                    modest.send({"c": "unsubscribe", "sub_id": "q"})
            name = f"greedy-{command}"
            with server.log_on(name) as greedy:
                greedy.send({"c": command, "cid": "q", "t": "many", "o": options.format("id")})
                assert greedy.is_disconnected()
            assert server.logs(f"client[{name}] is not consuming messages")
        publisher.flush()


@pytest.mark.parametrize(
    ("topic", "keys"),
    [
        ("calm", {"o": "conflation={},conflation_key=[/id]"}),
        ("many", {"o": "conflation={}"}),
        ("many", {"o": "conflation={}", "c": "delta_subscribe"}),
    ],
)
def test_what_waits_to_be_conflated_counts(
    server: RunningServer, topic: str, keys: dict[str, str]
) -> None:
    """As long as it waits: a short interval keeps little."""
    name = f"patient-{topic}-{keys.get('c')}"
    with (
        server.log_on("publisher") as publisher,
        server.log_on(f"brisk-{topic}") as brisk,
        server.log_on(name) as patient,
    ):
        brisk.subscribe(topic, "1", **keys | {"o": keys["o"].format("10ms")})
        patient.subscribe(topic, "1", **keys | {"o": keys["o"].format("1h")})
        for number in range(30):
            id_ = f"{name}-{number}".encode()
            publisher.publish(topic, b'{"id":"%s","n":"%s"}' % (id_, BODY))
            brisk.receive()
        assert patient.is_disconnected()
        assert server.logs(f"client[{name}] is not consuming messages")
        assert brisk.subscribe(topic, "2", f="/id = 'none'")["status"] == "success"


def test_what_a_client_has_counts_if_it_is_to_hear_what_goes_out_of_focus(
    server: RunningServer,
) -> None:
    """With conflation; as long as the subscription lasts, or one that takes its place."""
    options = "oof,conflation=1ms"
    with server.log_on("publisher") as publisher, server.log_on("tracking") as tracking:

        def publish_and_receive(count: int) -> None:
            for number in range(count):
                publisher.publish("many", b'{"id":"track-%d","n":"%s"}' % (number, BODY))
                assert tracking.receive()[0]["c"] == "p"

        command = {"c": "sow_and_subscribe", "f": "/id LIKE '^track-'", "a": "completed"}
        for _ in range(4):  # one at a time they fit
            for more in ("", ",replace"):
                tracking.send(command | {"t": "many", "sub_id": "1", "o": options + more})
                while tracking.receive()[0]["c"] != "ack":
                    pass
            publish_and_receive(5)
            tracking.send({"c": "unsubscribe", "sub_id": "1"})
        tracking.subscribe("many", "2", o=options, f="/id LIKE '^track-'")
        with pytest.raises((EOFError, ConnectionError)):
            publish_and_receive(20)
        assert server.logs("client[tracking] is not consuming messages")


def test_a_directory_for_slow_clients_that_cannot_be_made_is_said_at_the_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    limits = "<MessageDiskPath>file/slow</MessageDiskPath>"
    with pytest.raises(ServerEnded, match="MessageDiskPath file/slow cannot be made: Not a dir"):
        running_server(tmp_path, elements=limits).__enter__()
