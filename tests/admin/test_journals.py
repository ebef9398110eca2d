"""What keeps the files of the transaction log from being removed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.admin.support import Admin, running_admin
from tests.support.waiting import wait_until

ELEMENTS: Final = """
<SOW>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <Semantics>at-least-once</Semantics>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work|jobs|safe</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
BODY: Final = b'{"x":"%s"}' % (b"x" * 100_000)
MORE_THAN_A_JOURNAL: Final = 110


def held_by(admin: Admin) -> list[str]:
    """Who needs each file, the oldest first."""
    log = admin.tree("/amps/instance/transaction_log.json")["amps"]["instance"]["transaction_log"]
    return [one["held_by"] for one in log["journals"]]


def test_a_journal_says_who_needs_it(tmp_path: Path) -> None:
    with (
        running_admin(tmp_path, elements=ELEMENTS) as admin,
        admin.server.log_on("publisher") as publisher,
        admin.server.log_on("consumer") as consumer,
    ):
        publisher.send({"c": "publish", "t": "jobs"}, b"{}")
        for _ in range(MORE_THAN_A_JOURNAL):
            publisher.send({"c": "publish", "t": "safe"}, BODY)
        wait_until(
            lambda: held_by(admin) == ["queue work", "being written"], lambda: held_by(admin)
        )
        consumer.send({"c": "subscribe", "t": "work", "cid": "1", "opts": "max_backlog=1"})
        while (header := consumer.receive()[0])["c"] != "p":
            pass
        consumer.send({"c": "ack", "t": "work", "bm": header["bm"]})
        wait_until(lambda: held_by(admin) == ["", "being written"], lambda: held_by(admin))
