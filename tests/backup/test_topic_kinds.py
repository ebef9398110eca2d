"""Backups of topics with all kinds of files: patterns, past states, chained ids; without a log."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.backup.support import amps_backup, create, instance, restored_instance
from tests.support.server import RunningServer
from tests.support.sow import CHAINED_TOPIC, CHAINING, query

TOPICS: Final = f"""
<SOW>
  {CHAINED_TOPIC}
  <Topic>
    <Name>desks</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^/desk/</Pattern>
    <FileName>sow/%n.sow</FileName>
  </Topic>
  <Topic>
    <Name>prices</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>sow/%n.sow</FileName>
    <History><Window>1d</Window><Granularity>1ms</Granularity></History>
  </Topic>
</SOW>
"""


def test_records_of_all_kinds_without_a_log(tmp_path: Path) -> None:
    """They are those of the original; ids of chains lead to the records that they led to."""
    with instance(tmp_path / "original", CHAINING + TOPICS) as admin:
        with admin.server.log_on("world") as peer:
            for number in range(200):
                body = {"id": number, "previous": number - 1 if number % 10 else None}
                peer.publish("chained", json.dumps(body).encode())
                peer.publish(f"/desk/{number % 7}", b'{"id": %d, "n": %d}' % (number % 5, number))
                peer.publish("prices", b'{"id": %d, "n": %d}' % (number % 5, number))
            peer.flush()
            time.sleep(0.05)
            moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
            time.sleep(0.05)
            peer.publish("prices", b'{"id": 0, "n": 1000}')
            peer.flush()
        backup = create(admin)
        expected = _content(admin.server, moment)
        assert len(expected["past"]) == len(expected["prices"])
        assert expected["past"] != expected["prices"]
    kinds = {file["kind"] for file in json.loads((backup / "manifest.json").read_text())["files"]}
    assert kinds == {"configuration", "sow", "chains", "statistics"}
    assert amps_backup("verify", backup.parent).returncode == 0
    target = tmp_path / "restored"
    assert amps_backup("restore", backup.parent, "--to", target).returncode == 0
    with restored_instance(target) as server:
        assert _content(server, moment) == expected
        with server.log_on("world") as peer:
            peer.publish("chained", b'{"id": 1000, "previous": 199}')
            peer.flush()
        assert len(_content(server, moment)["chained"]) == len(expected["chained"]) == 20


def _content(server: RunningServer, moment: str) -> dict[str, list[Any]]:
    with server.log_on("reader") as peer:
        topics = ("chained", "^/desk/", "/desk/3", "prices")
        content = {topic: query(peer, topic).messages for topic in topics}
        content["past"] = query(peer, "prices", bm=moment).messages
    return {topic: sorted(messages, key=json.dumps) for topic, messages in content.items()}
