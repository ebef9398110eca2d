"""What other instances have recorded of a queue happens here, too."""

from __future__ import annotations

import json
from pathlib import Path

from amperage.wire.bookmarks import client_hash
from tests.engine.incoming import (
    Make,
    essence,
    frames,
    publish,
)
from tests.engine.queues import serve_queues
from tests.engine.replicas import Replica, Road
from tests.engine.support import Core


def serve_jobs(core: Core) -> None:
    """Queue `jobs` takes the messages of `work`, also those that are in the log already."""
    serve_queues(core, {"jobs": "work"})


def test_queues_take_what_comes_and_what_has_become_of_it(make: Make) -> None:
    """Messages, also with correlation ids; acknowledgements, of messages that somebody here has,
    too, and before their messages have come."""
    one, two = make("one", serve_jobs), make("two", serve_jobs)
    road = Road(one, two)
    peer = one.client("publisher")
    for number in range(1, 11):
        extras = {"x": "mark"} if number % 3 == 0 else {}
        body = b'{"n":%d%s}' % (number, b',"skip":1' if number == 5 else b"")
        publish(peer, "work", body, s=number, **extras)
    road.carry()
    consumer = two.client("consumer")
    consumer.send({"c": "subscribe", "cid": "1", "t": "jobs", "o": "max_backlog=100"})
    two.core.clock.turn()
    two.core.engine.flush()
    came = frames(consumer)
    assert [(json.loads(body)["n"], head.get("x")) for head, body in came] == [
        (number, None if number % 3 else "mark") for number in range(1, 11) if number != 5
    ]

    client = client_hash("publisher")
    worker = one.client("worker")
    worker.send({"c": "sow_delete", "t": "jobs", "bm": f"{client}|1|,{client}|2|"})
    worker.send({"c": "sow_delete", "t": "jobs", "bm": f"{client}|3|", "o": "expire"})
    worker.send({"c": "sow_delete", "t": "jobs", "bm": f"{client}|12|"})
    publish(peer, "work", b'{"n":11}', s=11)
    publish(peer, "work", b'{"n":12}', s=12)
    one.core.clock.advance(0)
    road.carry()
    two.core.clock.turn()
    two.core.engine.flush()
    assert [json.loads(body)["n"] for _, body in frames(consumer)] == [11]
    assert two.core.engine.topics.queues is not None
    (queue,) = two.core.engine.topics.queues
    assert queue.core.depth == 7
    for replica in (one, two):
        replica.core.clock.turn()
    road.carry()
    letters = [
        [essence(one) for one in replica.entries() if one.topic.name == "dead"]
        for replica in (one, two)
    ]
    assert letters[0] == letters[1]
    assert len(letters[0]) == 1


def test_a_restart_writes_no_letters_of_other_instances(make: Make, tmp_path: Path) -> None:
    """Here the letter has not come yet; the instance where the message expired sends it."""
    one, two = make("one", serve_jobs), Replica("two", tmp_path, prepare=serve_jobs)
    publish(one.client("publisher"), "work", b"{}", s=1)
    mark = f"{client_hash('publisher')}|1|"
    one.client("worker").send({"c": "sow_delete", "t": "jobs", "bm": mark, "o": "expire"})
    Road(one, two).carry()
    kinds = [entry.topic.name for entry in two.entries()]
    assert kinds == ["work", "jobs"]
    two.close()

    again = make("two", serve_jobs)
    again.core.clock.turn()
    assert [entry.topic.name for entry in again.entries()] == kinds
    assert again.said() == []
    one.core.clock.advance(0)
    assert [entry.topic.name for entry in one.entries()] == [*kinds, "dead"]
