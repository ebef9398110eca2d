"""Files that are cut as a power failure cuts them: zeros from some place on, or nothing at all.

A server works, is killed, and its files are kept. For each cut a copy of them is damaged, and a
server started from it: what it then has is what the first one had acknowledged.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from server.sow.slab_file import SlabFile
from server.sow.slab_format import PAGE
from server.sow.slab_scan import scan
from tests.recovery.test_set_back import delete, publish, records_of
from tests.support.moments import now
from tests.support.raw import QUICK_ACKS
from tests.support.server import RunningServer, running_server

RECORDED: Final = """
<SOW>
  <Topic>
    <Name>h</Name><MessageType>json</MessageType><Key>/id</Key><FileName>h.sow</FileName>
    {history}
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^h$</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
HISTORY: Final = "<History><Window>1d</Window><Granularity>0s</Granularity></History>"


def sow_entries(path: Path) -> tuple[list[int], int]:
    """Return where the entries of a SOW file begin, and where its first slab ends."""
    places: list[int] = []
    file = SlabFile(path, writable=False)
    scan(file, lambda location, _: places.append(PAGE + location))
    end = PAGE + file.slab_size
    file.close()
    return places, end


def copy_with(source: Path, target: Path, name: str, content: bytes) -> None:
    """Copy the files of a server, one of them with another content."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.log", "*.xml"))
    (target / name).write_bytes(content)


def states(server: RunningServer, bookmarks: Sequence[str]) -> list[dict[str, int]]:
    """Return the records of the topic at each of some moments, and now."""
    with server.log_on("reader") as peer:
        past = [records_of(peer, "h", bm=bookmark) for bookmark in bookmarks]
        return [*past, records_of(peer, "h")]


@pytest.mark.parametrize("history", [HISTORY, ""])
def test_a_sow_file_is_cut_between_the_entries_of_a_change(tmp_path: Path, history: str) -> None:
    """The log completes the change, also a deletion of several records, and history knows it."""
    elements = RECORDED.format(history=history)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    moments: list[str] = []
    expected: list[dict[str, int]] = []
    with (
        running_server(whole, elements=elements) as server,
        server.log_on("p", o=QUICK_ACKS) as peer,
    ):
        state: dict[str, int] = {}
        for sequence, key in enumerate("abcda", 1):
            publish(peer, "h", sequence, key, sequence)
            state[key] = sequence
        moments.append(now())
        expected.append(dict(state))
        delete(peer, "h", 6, "/id IN ('a', 'b', 'c')")
        moments.append(now())
        expected.append({"d": 4})
        publish(peer, "h", 7, "a", 7)
        publish(peer, "h", 8, "d", 8)
        server.stop(signal.SIGKILL)
    asked = moments if history else []
    wanted = [*(expected if history else []), {"a": 7, "d": 8}]
    content = (whole / "h.sow").read_bytes()
    places, end = sow_entries(whole / "h.sow")
    for place in places[4:]:
        copy_with(whole, cut, "h.sow", content[:place] + bytes(end - place) + content[end:])
        with running_server(cut, elements=elements) as server:
            assert states(server, asked) == wanted, place
            server.stop()
