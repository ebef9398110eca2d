"""Clients that do not read: kept on disk, then disconnected, and nobody else notices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import RunningServer, running_server

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
    with running_server(directory, elements=LIMITS.format(directory=directory)) as running:
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
        assert server.logs("client[pausing] has read everything")
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
