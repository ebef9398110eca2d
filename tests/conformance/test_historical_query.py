"""Queries of past states: topics with History."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.moments import now
from tests.support.server import RunningServer, module_server
from tests.support.sow import query

TOPICS = """
<SOW>
  <Topic>
    <Name>past</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <FileName>past.sow</FileName>
    <History><Window>1h</Window><Granularity>0s</Granularity></History>
  </Topic>
  <Topic>
    <Name>present</Name>
    <MessageType>json</MessageType>
    <Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
</SOW>
"""


server = module_server(TOPICS)


def test_a_query_of_a_moment_gives_the_state_of_that_moment(server: RunningServer) -> None:
    """Records as they were then, deleted ones included, and none that came later."""
    with server.log_on() as peer:
        states = []
        for step in range(4):
            for topic in ("past", "present"):
                if step == 3:
                    peer.send({"c": "sow_delete", "t": topic, "f": "/id = 0"})
                else:
                    peer.publish(topic, b'{"id":%d,"n":%d}' % (step % 2, step))
            peer.flush()
            states.append(now())
        found = [
            sorted(message["n"] for message in query(peer, "past", bm=moment).messages)
            for moment in states
        ]
        assert found == [[0], [0, 1], [1, 2], [1]]
        assert query(peer, "past", bm=states[1], f="/n = 1").bodies == [b'{"id":1,"n":1}']
        assert query(peer, "past", bm="0|1|").messages == [{"id": 1, "n": 1}]
        assert query(peer, "present", bm=states[1]).messages == [{"id": 1, "n": 1}]


def test_outside_of_the_window_nothing_is_known(server: RunningServer) -> None:
    """Neither before the window nor at EPOCH."""
    with server.log_on() as peer:
        peer.publish("past", b'{"id":9,"n":9}')
        peer.flush()
        earlier = (datetime.now(UTC) - timedelta(hours=2)).strftime("%Y%m%dT%H%M%SZ")
        assert query(peer, "past", bm=earlier).records == []
        assert query(peer, "past", bm="0").records == []


@pytest.mark.parametrize("bookmark", ["20261399T000000Z", "yesterday", "123|45|"])
def test_what_is_no_moment_is_refused(server: RunningServer, bookmark: str) -> None:
    """Where there is a history; other topics pass over it."""
    with server.log_on() as peer:
        command = {"c": "sow", "cid": "1", "t": "past", "a": "processed", "bm": bookmark}
        ack = peer.ask(command)
        assert (ack["status"], ack["reason"]) == ("failure", "invalid bookmark")
        query(peer, "present", bm=bookmark)
