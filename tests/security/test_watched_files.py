"""Files of users, and of whom to trust, that change while the server runs, in whatever way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from server.process.file_watch import FileWatch
from tests.engine.support import RecordingLog
from tests.security.users import MODULES, USERS, may_log_on, try_to_log_on, write_users
from tests.support.server import free_port, running_server
from tests.support.waiting import WAIT_SECONDS
from tests.transports.support import Authority, gets_in, transport

Step = Callable[[Path], object]


def put(path: Path, text: str) -> None:
    """Put a file in the place of another one."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name("new")
    new.write_text(text)
    new.replace(path)


def lead(link: Path, target: str) -> None:
    """Put a symbolic link in the place of another one."""
    new = link.with_name("new link")
    new.symlink_to(target)
    new.replace(link)


def of_kubernetes(at: Path) -> None:
    put(at / "..1/file", "one")
    lead(at / "..data", "..1")
    lead(at / "file", "..data/file")


def exchanged_by_kubernetes(at: Path) -> None:
    put(at / "..2/file", "two")
    lead(at / "..data", "..2")


def behind_a_link(at: Path) -> None:
    put(at / "kept/real", "one")
    lead(at / "file", "kept/real")


def led_elsewhere(at: Path) -> None:
    put(at / "kept/other", "two")
    lead(at / "file", "kept/other")


def behind_two(at: Path) -> None:
    behind_a_link(at)
    (at / "kept/real").rename(at / "kept/very")
    lead(at / "kept/real", str(at / "kept/very"))


def of_releases(at: Path) -> None:
    put(at / "v1/file", "one")
    lead(at / "current", "v1")
    lead(at / "file", "./v1/../current/file")


def released(at: Path) -> None:
    put(at / "v2/file", "two")
    lead(at / "current", "v2")


def moved_away_and_made_anew(at: Path) -> None:
    (at / "kept/real").unlink()
    (at / "kept").rmdir()
    put(at / "kept/real", "two")


WAYS: dict[str, tuple[Step, Step]] = {
    "a file, replaced": (
        lambda at: put(at / "file", "one"),
        lambda at: put(at / "file", "two"),
    ),
    "a link, its target replaced": (behind_a_link, lambda at: put(at / "kept/real", "two")),
    "a link, its target rewritten": (
        behind_a_link,
        lambda at: (at / "kept/real").write_text("two"),
    ),
    "two links, the last target replaced": (behind_two, lambda at: put(at / "kept/very", "two")),
    "a link, replaced": (
        behind_a_link,
        led_elsewhere,
    ),
    "a volume of Kubernetes": (of_kubernetes, exchanged_by_kubernetes),
    "a directory behind a link that leads elsewhere": (of_releases, released),
    "a directory that is made anew": (behind_a_link, moved_away_and_made_anew),
}


@pytest.mark.parametrize(("begin", "change"), WAYS.values(), ids=WAYS.keys())
def test_a_change_is_seen_whatever_links_lead_to_the_file(
    tmp_path: Path, begin: Step, change: Step
) -> None:
    """And a second one in the same place, where the way may be another one by then."""

    async def watch() -> None:
        begin(tmp_path)
        told: asyncio.Queue[str] = asyncio.Queue()
        files = FileWatch(RecordingLog())
        files.watch(tmp_path / "file", told.put_nowait)
        change(tmp_path)
        async with asyncio.timeout(WAIT_SECONDS):
            while (tmp_path / "file").read_text() != "two" or await told.get() == "deleted":
                pass
            Path(os.path.realpath(tmp_path / "file")).write_text("three")
            assert await told.get() == "modified"
        files.close()

    asyncio.run(watch())


def test_a_user_who_is_removed_behind_a_link_is_disconnected(tmp_path: Path) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        write_users(tmp_path / name, USERS if name == "v1" else USERS.replace(".ann]", ".dan]"))
    lead(tmp_path / "current", "v1")
    modules = MODULES.replace("users.toml", "current/users.toml")
    with running_server(tmp_path, elements=modules) as server, server.connect() as peer:
        assert try_to_log_on(peer, "ann", "ann")["status"] == "success"
        lead(tmp_path / "current", "v2")
        with pytest.raises(EOFError):
            peer.receive()
        assert not may_log_on(server, "ann", "ann")


def test_a_file_that_becomes_readable_by_all_is_warned_of(tmp_path: Path) -> None:
    """With the same content, of which nothing else is said."""
    file = write_users(tmp_path)
    with running_server(tmp_path, elements=MODULES) as server:
        file.chmod(0o644)
        assert server.logs(
            "25-0062 file of users: users.toml: all users of this machine can read it"
        )
        file.chmod(0o600)
        assert server.logs("25-0060", 2)


def test_what_is_no_file_stops_nobody(tmp_path: Path) -> None:
    """Not even the server, when it is to end; what stands there is told, and not opened."""
    file = write_users(tmp_path)
    ours = Authority(tmp_path, "ours")
    certificate, key = ours.issue("localhost")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    ours.file.rename(trusted / "ours.pem")
    secured = transport(
        "secure",
        "tcps",
        f"<InetAddr>127.0.0.1:{free_port()}</InetAddr><Certificate>{certificate}</Certificate>"
        f"<PrivateKey>{key}</PrivateKey><VerifyClient>true</VerifyClient><CAPath>trusted</CAPath>",
    )
    action = """
      <Actions><Action>
        <On>
          <Module>amps-action-on-file-change</Module><Options><Path>drop.csv</Path></Options>
        </On>
        <Do>
          <Module>amps-action-do-echo-message</Module>
          <Options><Message>drop.csv was {{AMPS_FILE_CHANGE}}</Message></Options>
        </Do>
      </Action></Actions>"""
    with running_server(tmp_path, elements=MODULES + action, transports=secured) as server:
        file.unlink()
        for name in ("users.toml", "drop.csv", "trusted/pipe.pem"):
            os.mkfifo(tmp_path / name)
            assert server.logs(f"{name} is treated as missing: ")
        assert server.logs("25-0061 file of users users.toml cannot be used")
        assert server.logs("11-0015 Transport[secure]: some CA certificates could not be loaded")
        assert may_log_on(server, "ann", "ann")
        (tmp_path / "drop.csv").unlink()
        with (tmp_path / "drop.csv").open("wb") as huge:
            huge.truncate(1 << 40)
        assert server.logs("drop.csv was created")
        os.truncate(tmp_path / "drop.csv", 0)
        assert server.logs("drop.csv was modified")
        assert may_log_on(server, "ann", "ann")
        assert server.stop() == 0


def test_an_authority_that_is_taken_away_counts_no_more(tmp_path: Path) -> None:
    """Neither if another file is broken, nor if none is left; and what is mended counts again."""
    ours, first, second = (Authority(tmp_path, name) for name in ("ours", "first", "second"))
    certificate, key = ours.issue("localhost")
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    port = free_port()
    secured = transport(
        "secure",
        "tcps",
        f"<InetAddr>127.0.0.1:{port}</InetAddr><Certificate>{certificate}</Certificate>"
        f"<PrivateKey>{key}</PrivateKey><VerifyClient>true</VerifyClient><CAPath>trusted</CAPath>",
    )

    for one in (first, second):
        (trusted / one.file.name).write_bytes(one.file.read_bytes())
    with running_server(tmp_path, transports=secured) as server:
        assert gets_in(port, ours, first)
        whole = second.file.read_bytes()
        (trusted / first.file.name).unlink()
        (trusted / second.file.name).write_bytes(whole[: len(whole) // 2])
        said = "11-0015 Transport[secure]: some CA certificates could not be loaded: "
        assert server.logs(f"{said}certificate authority trusted/second.pem: it is damaged, or cut")
        assert not gets_in(port, ours, first)
        (trusted / second.file.name).write_bytes(whole)
        assert server.logs("11-0006", 2)
        assert gets_in(port, ours, second)
        (trusted / second.file.name).unlink()
        assert server.logs(f"{said}CAPath trusted: there is no .pem file")
        assert not gets_in(port, ours, second)
