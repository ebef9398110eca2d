"""A helper thread fails: whoever waits for it does not wait for ever."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from server.app.wiring.dead_threads import EXIT_CODE
from server.storage.journal import Disk as JournalDisk
from server.storage.sow.group_commit import SowCommitter
from tests.support.server import running_server
from tests.support.stepped_disk import commit_in_steps

RECORDS = """
<SOW><Topic>
  <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><FileName>{sow}/o.sow</FileName>
</Topic></SOW>
"""
LOG = """
<TransactionLog>
  <JournalDirectory>{journal}</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@dataclass(frozen=True)
class Defect:
    """Lets what puts a file on stable storage fail as it never should, in a server's process.

    Attributes:
        switch: a file that is there while it fails.
        name: the end of the other file's name.
    """

    switch: Path
    name: str

    def __call__(self) -> None:
        """Replace what synchronises files."""
        good = os.fdatasync

        def sync_or_fail(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if self.switch.exists() and path.endswith(self.name):
                raise ZeroDivisionError("there is a defect")
            good(descriptor)

        JournalDisk.commit = commit_in_steps  # type: ignore[method-assign]  # by the call replaced
        os.fdatasync = sync_or_fail  # type: ignore[assignment]  # of the same signature but for names
        defaults = SowCommitter.__init__.__defaults__ or ()
        SowCommitter.__init__.__defaults__ = tuple(
            sync_or_fail if value is good else value for value in defaults
        )


@pytest.mark.parametrize(
    ("elements", "file", "thread"),
    [(RECORDS, "o.sow", "sow-commit"), (LOG, ".journal", "journal-commit")],
    ids=["records", "log"],
)
def test_the_server_ends_where_clients_would_wait_for_ever(
    tmp_path: Path, elements: str, file: str, thread: str
) -> None:
    switch = tmp_path / "switch"
    with (
        running_server(tmp_path, elements=elements, prepare=Defect(switch, file)) as server,
        server.log_on("publisher") as peer,
    ):
        switch.touch()
        peer.send({"c": "publish", "t": "orders", "s": 1, "a": "persisted"}, b'{"id":1}')
        assert peer.is_disconnected()
        assert server.process.wait(10) == EXIT_CODE
        assert f"01-0005 Fatal: thread {thread} died" in server.log()
        assert "Traceback" not in server.log()
