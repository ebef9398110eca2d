"""Messages of queues that operators redrive, move and purge."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from tests.admin.support import Admin, Reply, running_admin
from tests.support.raw import RawPeer
from tests.support.waiting import wait_until

_QUEUE: Final = """
<Queue>
  <Name>{name}</Name><MessageType>json</MessageType><UnderlyingTopic>{topic}</UnderlyingTopic>
  <Semantics>at-least-once</Semantics>{more}
</Queue>
"""
_QUEUES: Final = {
    "work": ("jobs", "<DeadLetterTopic>dead</DeadLetterTopic>"),
    "twin": ("jobs", ""),
    "aside": ("put-aside", ""),
    "dead-letters": ("dead", ""),
}
ELEMENTS: Final = f"""
<SOW>
{"".join(_QUEUE.format(name=n, topic=t, more=more) for n, (t, more) in _QUEUES.items())}
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic>
    <Name>work|twin|aside|dead-letters|jobs|put-aside|dead</Name><MessageType>json</MessageType>
  </Topic>
</TransactionLog>
"""


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path, elements=ELEMENTS) as running:
        yield running


@pytest.fixture
def peer(admin: Admin) -> Iterator[RawPeer]:
    """A client that has published five jobs."""
    with admin.server.log_on("producer") as peer:
        for number in range(5):
            peer.send({"c": "publish", "t": "jobs"}, b'{"id":%d}' % number)
        comes_to(admin, work=5, twin=5)
        yield peer


def act(admin: Admin, queue: str, operation: str, **parameters: str) -> Reply:
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    return admin.ask(f"/amps/administrator/queues/{queue}!json/{operation}?{query}", "POST")


def done(reply: Reply) -> str:
    assert reply.status == 200, reply.text
    return re.sub("<[^>]*>", "", reply.text)


def comes_to(admin: Admin, **depths: int) -> None:
    """Wait until queues have as many messages; their names have underscores for hyphens."""

    def depth(name: str) -> int:
        path = f"/amps/instance/queues/{name.replace('_', '-')}!json/details.json"
        return int(admin.ask(path).json["depth"])

    wait_until(
        lambda: {name: depth(name) for name in depths} == depths,
        lambda: str({name: depth(name) for name in depths}),
    )


def test_a_purge_leaves_what_consumers_have(admin: Admin, peer: RawPeer) -> None:
    assert done(act(admin, "work", "purge", filter="/id > 2")) == (
        "2 messages of work!json have been removed."
    )
    comes_to(admin, work=3, twin=5)
    peer.send({"c": "subscribe", "cid": "1", "t": "work", "sub_id": "s"})
    wait_until(
        lambda: admin.ask("/amps/instance/queues/work!json/details.json").json["backlog"] == "1"
    )
    assert done(act(admin, "work", "purge")).startswith("2 messages")
    comes_to(admin, work=1, dead_letters=0)
    path = "/amps/administrator/queues/work!json/purge"
    assert admin.server.logs(f"Operation {path} requested by 127.0.0.1:", times=2)
    assert admin.server.waits_for(
        lambda log: any(
            "25-0083" in line and path in line and "/id > 2" in line for line in log.splitlines()
        )
    )


@pytest.mark.parametrize("target", ["aside", "aside!json", "twin"])
@pytest.mark.usefixtures("peer")
def test_messages_move_to_one_queue_only(admin: Admin, target: str) -> None:
    """Also if the queues have one topic."""
    name = target.partition("!")[0]
    assert done(act(admin, "work", "move", to=target, filter="/id < 2")) == (
        f"2 messages of work!json have been moved to {name}."
    )
    comes_to(admin, work=3, **({"aside": 2, "twin": 5} if name == "aside" else {"twin": 7}))


def test_dead_letters_are_redriven(admin: Admin, peer: RawPeer) -> None:
    expire = {"c": "sow_delete", "cid": "3", "t": "work", "filter": "/id < 3", "opts": "expire"}
    peer.send(expire)
    comes_to(admin, work=2, dead_letters=3)
    only = "CORRELATION_ID() LIKE 'reason=forced_expire' AND /id = 1"
    assert done(act(admin, "dead-letters", "redrive", filter=only)).startswith("1 dead letters")
    comes_to(admin, work=3, dead_letters=2, twin=5)
    assert done(act(admin, "dead-letters", "redrive")).startswith("2 dead letters")
    comes_to(admin, work=5, dead_letters=0, twin=5)
    assert done(act(admin, "work", "redrive")).startswith("0 dead letters")


def test_what_cannot_be_done_says_why(admin: Admin) -> None:
    for parameters, reason in (
        ({"to": "nowhere"}, "There is no queue 'nowhere' of the message type json."),
        ({"to": "work"}, "work is the queue that the messages are in."),
        ({"to": "aside", "filter": "/id ="}, "The filter is invalid"),
    ):
        reply = act(admin, "work", "move", **parameters)
        assert (reply.status, reason in reply.text) == (409, True), reply.text
    misspelled = act(admin, "work", "purge", filtr="/id < 2")
    assert (misspelled.status, misspelled.text.strip()[-26:]) == (409, "Unknown parameters: filtr.")
    assert act(admin, "work", "move").status == 400
    purge = "/amps/administrator/queues/work!json/purge"
    assert admin.ask(purge, User_Agent="Mozilla/5").status == 405
