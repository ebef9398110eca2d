"""Journals stay until the queues that need them are done (AMPS User Guide, Message Queues)."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tests.support.old_journals import PER_FILE, fill, journals, number_of, on_topic, tell
from tests.support.queues import bookmarks, consume, done, take
from tests.support.raw import RawPeer
from tests.support.server import RunningServer, running_server
from tests.support.waiting import wait_until

LAST = 2 * PER_FILE + 3
"""Messages in two full journals and a third one."""


def elements(archive: Path) -> str:
    """Two queues over one topic, and an action for each verb."""
    return f"""
      <SOW>
        <Queue>
          <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>in</UnderlyingTopic>
          <MaxPerSubscriptionBacklog>100</MaxPerSubscriptionBacklog>
        </Queue>
        <Queue>
          <Name>odd</Name><MessageType>json</MessageType><UnderlyingTopic>in</UnderlyingTopic>
          <Filter>/n &lt; 0</Filter>
        </Queue>
      </SOW>
      <TransactionLog>
        <JournalDirectory>journal</JournalDirectory>
        <JournalArchiveDirectory>{archive}</JournalArchiveDirectory>
        <JournalSize>10MB</JournalSize>
        <PreallocatedJournalFiles>1</PreallocatedJournalFiles>
        <FlushInterval>1ms</FlushInterval>
        <Topic><Name>in</Name><MessageType>json</MessageType></Topic>
      </TransactionLog>
      <Actions>{on_topic("archive")}{on_topic("compress")}{on_topic("remove")}</Actions>
    """


def left(peer: RawPeer, count: int) -> list[int]:
    """The numbers of the messages that a consumer gets, so many."""
    return [number_of(body) for _, body in take(peer, count)]


def warnings(server: RunningServer) -> list[str]:
    """What has been said of messages that keep journals."""
    return [line for line in server.log().splitlines() if "1D-0018" in line]


def test_one_message_keeps_its_journal_until_it_is_done(tmp_path: Path, archive: Path) -> None:
    """And is named, with its queue; archived, compressed, after a restart, after a kill."""
    directory = tmp_path / "journal"
    with running_server(tmp_path, elements=elements(archive)) as server:
        fill(server, 1, LAST, "in")
        with server.log_on("worker") as peer:
            consume(peer, "work")
            messages = take(peer, LAST)
            forgotten = messages.pop(3)
            assert done(peer, "work", bm=bookmarks(messages)) == LAST - 1
            tell(server, "remove", "0s")
            assert server.logs("1D-0018")
            tell(server, "remove", "0s")
            assert server.logs("29-0103 remove marked", 2)
            (said,) = warnings(server)
            assert re.search(
                r"00000000\.journal cannot be removed because of queue work: its oldest message,"
                rf" {re.escape(forgotten[0]['bm'])}, has been there for 0:0\d:\d\d: has been leased"
                " to worker for ",
                said,
            )
            assert {"00.journal", "01.journal"} <= journals(directory)
        tell(server, "archive", "0s")
        wait_until(lambda: journals(archive) == {"00.journal", "01.journal"})
        wait_until(lambda: not {"00.journal", "01.journal"} & journals(directory))
        server.stop(signal.SIGKILL)
    with running_server(tmp_path, elements=elements(archive)) as server:
        tell(server, "compress", "0s")
        wait_until(lambda: journals(archive) == {"00.journal.gz", "01.journal.gz"})
        tell(server, "remove", "0s")
        assert server.logs("for 0:")
        assert "the queue has no subscribers" in warnings(server)[0]
        assert journals(archive) == {"00.journal.gz", "01.journal.gz"}
        with server.log_on("worker") as peer:
            consume(peer, "work")
            (message,) = take(peer, 1)
            assert number_of(message[1]) == number_of(forgotten[1])
            assert done(peer, "work", bm=bookmarks([message])) == 1
        wait_until(lambda: journals(archive) == set())
        assert server.stop() == 0
    with running_server(tmp_path, elements=elements(archive)) as server:
        fill(server, LAST + 1, LAST + 1, "in")
        with server.log_on("worker") as peer:
            consume(peer, "work")
            assert left(peer, 1) == [LAST + 1]


def test_nothing_is_said_of_queues_that_need_no_more(tmp_path: Path, archive: Path) -> None:
    """What waits in younger journals is in nobody's way, and what is there stays deliverable."""
    directory = tmp_path / "journal"
    with running_server(tmp_path, elements=elements(archive)) as server:
        fill(server, 1, LAST, "in")
        with server.log_on("worker") as peer:
            consume(peer, "work")
            messages = take(peer, LAST)
            assert done(peer, "work", bm=bookmarks(messages[: 2 * PER_FILE])) == 2 * PER_FILE
        tell(server, "remove", "0s")
        wait_until(lambda: not {"00.journal", "01.journal"} & journals(directory))
        assert warnings(server) == []
        server.stop(signal.SIGKILL)
    waiting = [number_of(body) for _, body in messages[2 * PER_FILE :]]
    with (
        running_server(tmp_path, elements=elements(archive)) as server,
        server.log_on("worker") as peer,
    ):
        consume(peer, "work")
        assert left(peer, len(waiting)) == waiting
