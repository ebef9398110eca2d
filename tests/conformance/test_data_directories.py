"""A configuration runs wherever it is started: the directories that it names are made."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.server import (
    CONFIGURATION,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.sow import CHAINED_TOPIC, CHAINING

TOPICS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./data/sow/%n.sow</FileName></Topic>
  <Topic><Name>fix/orders</Name><MessageType>fix</MessageType><Key>/37</Key>
    <FileName>./data/sow/%n.sow</FileName></Topic>
</SOW>
"""


def test_missing_directories_are_made_and_records_are_found_again(tmp_path: Path) -> None:
    """Also for a topic whose name has slashes; after a restart everything is there."""
    with running_server(tmp_path, elements=TOPICS) as server, server.log_on() as peer:
        ack = peer.ask({"c": "publish", "t": "orders", "s": 1, "a": "persisted"}, b'{"id": 1}')
        assert ack["status"] == "success"
        assert server.stop() == 0
    assert sorted(path.name for path in (tmp_path / "data" / "sow").iterdir()) == [
        "fix",
        "orders.json.sow",
    ]
    with running_server(tmp_path, elements=TOPICS) as server, server.log_on() as peer:
        peer.send({"c": "sow", "cid": "q", "t": "orders"})
        assert peer.receive_header()["c"] == "group_begin"
        header, body = peer.receive()
        assert header["c"] == "sow"
        assert body.endswith(b'{"id": 1}')


LOG = """
<TransactionLog>
  <JournalDirectory>log/a/b</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def open_to_all() -> None:
    """Have files made that every user can write to."""
    os.umask(0)


def test_other_users_write_to_nothing_whatever_the_umask(tmp_path: Path) -> None:
    elements = TOPICS + LOG
    with running_server(tmp_path, elements=elements, prepare=open_to_all) as server:
        assert server.stop() == 0
    made = [*(tmp_path / "data").rglob("*"), *(tmp_path / "log").rglob("*")]
    assert len(made) > 4
    assert [path for path in made if path.stat().st_mode & 0o022] == []


ALL_KINDS = f"""
<SOW>{CHAINED_TOPIC}</SOW>
{CHAINING}
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>chained</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


def allow_everything() -> None:
    """Let this process make files that anybody may read and write, unless it says otherwise."""
    os.umask(0)


TARGETS = """
<Target><Protocol>file</Protocol><FileName>plain.log</FileName><Level>info</Level></Target>
<Target><Protocol>gzip</Protocol><FileName>packed.log.gz</FileName><Level>info</Level></Target>
"""

STATISTICS = """
<Admin><InetAddr>127.0.0.1:0</InetAddr><FileName>stats.db</FileName><Interval>1s</Interval></Admin>
"""


def test_files_are_readable_for_owner_and_group_alone(tmp_path: Path) -> None:
    """Whatever the umask says; what the shell makes of standard output is not ours to close."""
    port, elements = free_port(), ALL_KINDS + STATISTICS
    text = CONFIGURATION.format(port=port, elements=elements, transports="", level="info")
    text = text.replace("</Logging>", f"{TARGETS}</Logging>")
    with running_configuration(tmp_path, text, port, allow_everything) as server:
        with server.log_on() as peer:
            ack = peer.ask({"c": "publish", "t": "chained", "s": 1, "a": "persisted"}, b'{"id": 1}')
            assert ack["status"] == "success"
        assert server.stop() == 0
    ours = ["chained.sow", "ids.chain", "plain.log", "packed.log.gz", "stats.db"]
    files = [*(tmp_path / name for name in ours), *(tmp_path / "journal").iterdir()]
    assert {path.suffix for path in files} >= {".sow", ".chain", ".journal", ".ack"}
    assert {f"{path.name}: {path.stat().st_mode & 0o777:o}" for path in files} == {
        f"{path.name}: 640" for path in files
    }
