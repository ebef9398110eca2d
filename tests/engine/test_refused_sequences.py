"""Which numbers of refused commands a publisher is told of at its next logon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.queues import serve_queues
from tests.engine.support import Core
from tests.storage.sow.support import topic_spec
from tests.support.raw import frame

REFUSED = {"c": "p", "t": "/AMPS/refused"}


@pytest.fixture
def core(tmp_path: Path) -> Core:
    """An engine with topics in the log, one of which has records, and one a queue."""
    core = Core()
    core.keep(topic_spec("/id", name="log/records"))
    core.record(tmp_path, "^log/")
    serve_queues(core, {"jobs": "log/jobs"})
    return core


def told(core: Core) -> list[tuple[str, int]]:
    """What the publisher is told at its next logon: each number with what has become of it."""
    core.clock.advance(0)
    core.commit()
    again = core.connect()
    again.send({"c": "logon", "client_name": "publisher", "mt": "json", "a": "processed"})
    core.clock.advance(0)
    core.transaction_log.journal.close()
    return [(header["status"], header["s"]) for header, _ in again.take_frames()]


@pytest.mark.parametrize(
    "header",
    [
        {"c": "p", "t": "log/a"},
        {"c": "p", "t": "log/records"},
        {"c": "sow_delete", "t": "log/records", "f": "1=1"},
        {"c": "sow_delete", "t": "jobs", "f": "1=1"},
        {"c": "sow_delete", "t": "jobs", "bm": "1|1|"},
    ],
)
def test_a_refused_number_is_told_unless_it_has_been_recorded_since(
    core: Core, header: dict[str, Any]
) -> None:
    """Whatever command comes with it again, and with the number after it; that one is known."""
    publisher = core.log_on("publisher")
    body = b'{"id":1}' if header["c"] == "p" else b""
    publisher.send({"c": "p", "t": "log/a", "s": 1})
    publisher.send(REFUSED | {"s": 2})
    publisher.send(header | {"s": 2}, body)
    publisher.send(REFUSED | {"s": 3})
    publisher.send(header | {"s": 4}, body)
    publisher.take_frames()
    publisher.send(header | {"s": 4, "a": "processed"}, body)
    assert [answer["reason"] for answer, _ in publisher.take_frames()] == ["duplicate"]
    assert told(core) == [("failure", 3), ("success", 4)]


def test_a_refused_number_that_comes_again_among_others_is_not_told(core: Core) -> None:
    """They are recorded in one step."""
    publisher = core.log_on("publisher")
    header = {"c": "p", "t": "log/a"}
    publisher.send(header | {"s": 1})
    publisher.send(REFUSED | {"s": 2})
    publisher.send_bytes(b"".join(frame(header | {"s": number}) for number in range(2, 22)))
    publisher.send(header | {"s": 22})
    assert told(core) == [("success", 22)]


def test_a_recorded_number_deletes_nothing_outside_of_the_log(core: Core) -> None:
    core.keep(topic_spec("/id", name="records"))
    publisher = core.log_on("publisher")
    publisher.send({"c": "p", "t": "records"}, b'{"id":1}')
    publisher.send({"c": "p", "t": "log/a", "s": 1})
    publisher.take_frames()
    publisher.send({"c": "sow_delete", "t": "records", "f": "1=1", "s": 1, "a": "processed"})
    assert [answer["reason"] for answer, _ in publisher.take_frames()] == ["duplicate"]
    publisher.send({"c": "sow", "t": "records"})
    assert [answer["c"] for answer, _ in publisher.take_frames()] == [
        "group_begin",
        "sow",
        "group_end",
    ]
