"""The samples with queues do what their comments say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amperage.client import Client, Message, MessageStream
from tests.cli.test_spark import spark
from tests.support.server import ROOT, free_port, running_configuration
from tests.support.waiting import WAIT_SECONDS

SAMPLES = ROOT / "sample_configs"


@contextmanager
def sample(directory: Path, name: str) -> Iterator[str]:
    """Run a sample; gives the URI of its transport."""
    port = free_port()
    text = (SAMPLES / name).read_text("utf-8")
    assert "<InetAddr>localhost:9007<" in text
    text = text.replace("<InetAddr>localhost:9007<", f"<InetAddr>127.0.0.1:{port}<")
    text = text.replace("localhost:8085", f"localhost:{free_port()}")
    with running_configuration(directory, text, port) as server:
        yield f"tcp://127.0.0.1:{port}/amps/json"
        server.stop()


@contextmanager
def session(uri: str) -> Iterator[Client]:
    with Client(timeout=WAIT_SECONDS) as client:
        client.connect(uri)
        client.logon()
        yield client


def take(stream: MessageStream) -> Message:
    """The next message."""
    message = stream.next(WAIT_SECONDS)
    assert message is not None
    return message


def acknowledge(stream: MessageStream, count: int) -> list[str]:
    """Acknowledge so many messages; gives their bodies."""
    seen: list[str] = []
    for _ in range(count):
        message = take(stream)
        seen.append(message.text)
        message.ack()
    return seen


def test_work_is_shared_and_stays_done(tmp_path: Path) -> None:
    jobs = [f'{{"job": {n}}}' for n in range(1, 7)]
    with sample(tmp_path, "work_queue.xml") as uri, session(uri) as one, session(uri) as other:
        ours = one.subscribe("jobs", max_backlog=2)
        theirs = other.subscribe("jobs", max_backlog=2)
        one.publish_all("jobs", jobs)
        first, second = acknowledge(ours, 2), acknowledge(theirs, 2)
        for client in (one, other):
            client.flush()
    with sample(tmp_path, "work_queue.xml") as uri, session(uri) as client:
        rest = acknowledge(client.subscribe("jobs", max_backlog=2), 2)
    assert sorted(first + second + rest) == jobs


def test_urgent_orders_come_first_and_small_ones_elsewhere(tmp_path: Path) -> None:
    orders = [
        '{"id": 1, "qty": 50}',
        '{"id": 2, "qty": 900, "urgency": 5}',
        '{"id": 3, "qty": 700, "urgency": 9}',
    ]
    with sample(tmp_path, "priority_queue.xml") as uri, session(uri) as client:
        client.publish_all("orders", orders)
        client.flush()
        large = client.subscribe("large_orders")
        assert acknowledge(large, 2) == [orders[2], orders[1]]
        large.unsubscribe()
        everything = client.subscribe("^(large|small)_orders$", max_backlog=5)
        assert acknowledge(everything, 1) == [orders[0]]


def test_what_nobody_can_do_is_put_aside_with_the_reason(tmp_path: Path) -> None:
    with sample(tmp_path, "dead_letter.xml") as uri, session(uri) as client:
        jobs, failed = client.subscribe("jobs"), client.subscribe("failed_jobs")
        client.publish("jobs", '{"job": 1}')
        for _ in range(3):
            take(jobs).cancel()
        letter = take(failed)
        assert letter.text == '{"job": 1}'
        assert "reason=max_cancels&deliveries=3" in (letter.correlation_id or "")
        letter.ack()
        client.publish("jobs", '{"job": 2}')
        take(jobs).expire()
        letter = take(failed)
        assert "reason=forced_expire&deliveries=1" in (letter.correlation_id or "")
        where = ("-server", uri.split("/")[2], "-type", "json", "-topic", "failed_jobs")
        assert spark("redrive", *where, "-filter", "/job = 1")[1].startswith("Redrove 0 messages")
        assert spark("redrive", *where)[1].startswith("Redrove 1 messages in ")
        assert take(jobs).text == '{"job": 2}'
