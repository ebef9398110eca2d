"""`amps-ctl reload`: several at once, during a drain and a start, and at a disk that fails."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from server.app.reload import topics
from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import edit, reloaded, running
from tests.cli.test_ctl import ctl
from tests.cli.topic_elements import queue, records, topic, view
from tests.security.users import MODULES, USERS, write_users
from tests.support.bad_disk import BadDisk
from tests.support.queues import bookmarks, consume, done, put, take
from tests.support.server import running_server
from tests.transports.support import transport

LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>in-.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
LIMIT: Final = ("</AMPSConfig>", "<MessageMemoryLimit>20MB</MessageMemoryLimit></AMPSConfig>")
LOADED: Final = MODULES.partition("<Authentication>")[0]
FOR_TRANSPORT: Final = MODULES.removeprefix(LOADED)


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    elements = f"{LOG}<SOW>{topic('plain')}{queue('work', 'in-work')}</SOW>"
    with running_admin(tmp_path, elements=elements) as running_one:
        yield running_one


def test_of_several_reloads_one_applies_the_differences(admin: Admin) -> None:
    edit(admin, "</SOW>", f"{topic('more')}</SOW>")
    edit(admin, *LIMIT)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ctl(admin, "reload"), range(4)))
    assert [one.returncode for one in found] == [0] * 4, found
    last = sorted(one.stdout.splitlines()[-1] for one in found)
    assert last == ["0 differences applied."] * 3 + ["2 differences applied."]
    with admin.server.log_on("peer") as peer:
        assert records(peer, "more") == []


def test_no_reload_during_a_drain(admin: Admin) -> None:
    put(admin.server, "in-work", [1])
    with admin.server.log_on("consumer") as consumer, ThreadPoolExecutor(1) as pool:
        consume(consumer, "work", 1)
        held = take(consumer, 1)
        drain = pool.submit(ctl, admin, "drain", "--timeout", "60s")
        assert admin.server.logs("00-0055")
        edit(admin, *LIMIT)
        before = running(admin)
        refused = ctl(admin, "reload")
        assert refused.returncode == 1
        assert "the instance is being drained. Cancel the drain first." in refused.stderr
        assert running(admin) == before
        assert admin.server.logs("00-0060")
        assert ctl(admin, "drain", "--cancel").returncode == 0
        assert drain.result().returncode != 0
        assert reloaded(admin)[-1] == "1 difference applied."
        assert done(consumer, "work", bm=bookmarks(held)) == 1


@dataclass(frozen=True)
class HangUpAtStart:
    """Prepares a process: it gets SIGHUP when it opens the first file of its log.

    Attributes:
        done: the file that says so.
    """

    done: Path

    def __call__(self) -> None:
        """Watch the calls of this process from now on."""
        open_ = os.open

        def open_file(path: Any, *rest: Any, **further: Any) -> int:
            if Path(path).parent.name == "journal" and not self.done.exists():
                self.done.touch()
                os.kill(os.getpid(), signal.SIGHUP)
            return open_(path, *rest, **further)

        os.open = open_file


def test_sighup_during_a_start_reloads_after_it(tmp_path: Path) -> None:
    prepare = HangUpAtStart(tmp_path / "signalled")
    options = ("--reload-on-sighup",)
    with running_server(tmp_path, elements=LOG, options=options, prepare=prepare) as server:
        assert server.logs("00-0059 The configuration has been reloaded: no differences")
        assert prepare.done.exists()
        with server.log_on("peer") as peer:
            peer.flush()


@dataclass(frozen=True)
class ImpatientDisk:
    """Prepares a process: syncs fail while a test wants that, and a reload waits for them shortly.

    Attributes:
        disk: see above.
    """

    disk: BadDisk

    def __call__(self) -> None:
        """Prepare this process."""
        vars(topics)["_STORE_TIMEOUT_S"] = 1.0
        self.disk()


def test_a_reload_is_refused_if_the_log_cannot_be_written(tmp_path: Path) -> None:
    disk, work = BadDisk(tmp_path / "switch"), queue("work", "in-work")
    with (
        running_admin(
            tmp_path, elements=f"{LOG}<SOW>{topic('plain')}</SOW>", prepare=ImpatientDisk(disk)
        ) as admin,
        admin.server.log_on("peer") as peer,
    ):
        put(admin.server, "in-work", [1])
        edit(admin, "</SOW>", f"{work}</SOW>")
        disk.break_down(".journal")
        peer.publish("in-work", b'{"n":2}')
        before = running(admin)
        done_ = ctl(admin, "reload")
        assert (done_.returncode, done_.stdout) == (1, "")
        assert "the transaction log cannot be written" in done_.stderr
        assert running(admin) == before
        assert records(peer, "work") is None
        disk.recover()
        reloaded(admin)
        assert records(peer, "work") == [b'{"n":1}', b'{"n":2}']


def test_a_socket_file_that_is_gone_does_not_keep_its_transport(
    admin: Admin, tmp_path: Path
) -> None:
    path = tmp_path / "amps.sock"
    unix = transport("local", "amps-unix", f"<FileName>{path}</FileName><Protocol>amps</Protocol>")
    edit(admin, "</Transports>", f"{unix}</Transports>")
    reloaded(admin)
    path.unlink()
    edit(admin, unix, "")
    reloaded(admin)
    assert "local" not in ctl(admin, "transport", "list").stdout


def test_permissions_change_before_there_are_new_topics(admin: Admin, tmp_path: Path) -> None:
    """A user who may not read a new view hears nothing of it, although it takes time to make."""
    write_users(tmp_path, USERS)
    count = 50_000
    with admin.server.log_on("publisher") as publisher, admin.server.log_on("bob") as bob:
        for number in range(count):
            publisher.publish("plain", b'{"id":%d,"g":%d,"v":1}' % (number, number))
        publisher.flush()
        bob.subscribe("count.*", "1")
        edit(admin, "</SOW>", f"{view('counts', 'plain')}</SOW>")
        edit(admin, "</AMPSConfig>", f"{LOADED}</AMPSConfig>")
        edit(admin, "<ReuseAddr>true</ReuseAddr>", f"<ReuseAddr>true</ReuseAddr>{FOR_TRANSPORT}")
        with ThreadPoolExecutor(1) as pool:
            reload = pool.submit(ctl, admin, "reload")
            while not reload.done():
                with pytest.raises(EOFError):  # never a message
                    bob.receive_header()
            assert reload.result().returncode == 0, reload.result().stderr
