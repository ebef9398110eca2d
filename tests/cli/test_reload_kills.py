"""Processes that are killed while they reload: a start gives what either configuration gives."""

from __future__ import annotations

import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit
from tests.cli.test_ctl import ctl
from tests.cli.topic_elements import queue, records, topic
from tests.support.long_form import spread
from tests.support.queues import bookmarks, consume, done, make_safe, numbers, put, take
from tests.support.server import running_configuration

LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>in-.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
FIXED: Final = topic("in-fixed", "<FileName>fixed.sow</FileName>")
WORK: Final = queue("work", "in-work")
COPY: Final = topic("in-work", "<Key>/n</Key><FileName>copy.sow</FileName>").replace(
    "<Key>/id</Key>", ""
)
MESSAGES: Final = 2_000


def is_right(admin: Admin, directory: Path, text: str, acknowledged: int) -> None:
    """Start on a configuration, and check what there is."""
    with (
        running_configuration(directory, text, admin.server.port) as again,
        again.log_on("peer") as peer,
    ):
        if COPY in text:
            assert len(records(peer, "in-work") or ()) == MESSAGES
        if WORK in text:
            consume(peer, "work", 10)
            given: list[int] = []
            while len(given) < MESSAGES - acknowledged:
                messages = take(peer, 1)
                given += numbers(messages)
                peer.send({"c": "sow_delete", "t": "work", "bm": bookmarks(messages)})
            assert given == list(range(acknowledged, MESSAGES))
            assert peer.hears_nothing()


@pytest.mark.parametrize("number", spread(range(12), 3))
def test_a_kill_during_a_reload_loses_nothing(tmp_path: Path, number: int) -> None:
    """Queues and topics that come, go and come again; consumers have acknowledged some messages."""
    chance, directory = random.Random(number), tmp_path / "server"
    directory.mkdir()
    with running_admin(directory, elements=f"{LOG}<SOW>{FIXED}{WORK}</SOW>") as admin:
        put(admin.server, "in-work", range(MESSAGES))
        with admin.server.log_on("consumer") as consumer, admin.server.log_on("other") as other:
            consume(consumer, "work", 7)
            assert done(other, "work", bm=bookmarks(take(consumer, 7))) == 7
        make_safe(admin.server)
        steps = [(WORK, ""), ("</SOW>", f"{WORK}</SOW>"), ("</SOW>", f"{COPY}</SOW>")]
        for step in steps[: number % 3]:
            edit(admin, *step)
            assert ctl(admin, "reload").returncode == 0
        edit(admin, *steps[number % 3])
        with ThreadPoolExecutor(1) as pool:
            reload = pool.submit(ctl, admin, "reload")
            time.sleep(chance.uniform(0.1, 0.6))
            admin.server.stop(signal.SIGKILL)
            reload.result()
        is_right(admin, directory, configuration(admin.server).read_text(), 7)
