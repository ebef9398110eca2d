"""amps-unix: connections over a socket in the file system."""

from __future__ import annotations

import signal
import socket
import stat
from pathlib import Path

import pytest

from tests.support.server import CONFIGURATION, amp_server, running_server
from tests.support.waiting import WAIT_SECONDS
from tests.transports.support import connect_unix, transport


def unix(path: Path, elements: str = "") -> str:
    """A Unix socket transport."""
    return transport("local", "amps-unix", f"<FileName>{path}</FileName>{elements}")


def start_and_fail(directory: Path, path: Path) -> str:
    """Start a server that cannot listen on a path, and give what it says."""
    text = CONFIGURATION.format(port=0, transports=unix(path), level="error", elements="")
    (directory / "refused.xml").write_text(text)
    ended = amp_server("refused.xml", cwd=directory)
    assert ended.returncode == 1
    return ended.stderr


def test_commands_and_messages_pass(tmp_path: Path) -> None:
    """A Unix socket serves like a port; FileMask is its permissions, and goes with the server."""
    path = tmp_path / "amps.sock"
    with running_server(tmp_path, transports=unix(path, "<FileMask>0640</FileMask>")) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        with connect_unix(path) as local, server.log_on() as other:
            assert local.log_on()["status"] == "success"
            other.subscribe("t", "1")
            local.publish("t", b"x" * 100_000)
            assert other.receive()[1] == b"x" * 100_000
        assert server.logs("remote address = local socket")
        assert server.stop() == 0
    assert not path.exists()


def test_the_file_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    """A server that was killed leaves its socket behind; the next one takes its place."""
    path = tmp_path / "amps.sock"
    with running_server(tmp_path, transports=unix(path)) as server:
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(WAIT_SECONDS)
    assert path.exists()
    with running_server(tmp_path, transports=unix(path)), connect_unix(path) as peer:
        assert peer.log_on()["status"] == "success"


def test_the_file_of_a_living_server_is_left_alone(tmp_path: Path) -> None:
    """A second server with the same FileName does not start, and the first one does not notice."""
    path = tmp_path / "amps.sock"
    with running_server(tmp_path, transports=unix(path)):
        said = start_and_fail(tmp_path, path)
        assert said == (
            f"refused.xml:12: transport local cannot listen on {path}:"
            " another server listens there\n"
        )
        with connect_unix(path) as peer:
            assert peer.log_on()["status"] == "success"


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """A FileName that belongs to something else is refused."""
    path = tmp_path / "precious"
    path.write_text("data")
    assert "there is a file of this name that is no socket" in start_and_fail(tmp_path, path)
    assert path.read_text() == "data"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("no/such/directory", "No such file or directory"), ("x" * 120, "AF_UNIX path too long")],
)
def test_a_path_that_cannot_be_used_is_said(tmp_path: Path, name: str, reason: str) -> None:
    """The reason of the operating system is part of the one line."""
    said = start_and_fail(tmp_path, tmp_path / name)
    assert said.endswith(f": {reason}\n")
    assert said.count("\n") == 1


def test_a_file_that_was_replaced_is_not_removed(tmp_path: Path) -> None:
    """A server removes at its end only the file that it made."""
    path = tmp_path / "amps.sock"
    with running_server(tmp_path, transports=unix(path)) as server:
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
            assert server.stop() == 0
            assert path.exists()
