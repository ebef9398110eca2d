"""A server whose standard output takes no data serves, logs to its other targets, and stops."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.raw import RawPeer, frame
from tests.support.server import COMMAND, CONFIGURATION, environment, free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

MESSAGES = 2_000
"""Enough at level trace to fill a pipe many times."""

BESIDE = """<Target><Protocol>file</Protocol><FileName>beside.log</FileName><Level>info</Level>
</Target></Logging>"""


@contextmanager
def stalled_server(
    directory: Path, *, is_full: bool, shares_errors: bool
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Run a server whose standard output is a pipe that nobody reads."""
    port = free_port()
    text = CONFIGURATION.format(port=port, elements="", transports="", level="trace")
    configuration = directory / "config.xml"
    configuration.write_text(text.replace("</Logging>", BESIDE))
    reader, writer = os.pipe()
    if is_full:
        os.set_blocking(writer, False)
        os.write(writer, b"x" * 10_000_000)
        os.set_blocking(writer, True)
    with open(directory / "err", "wb") as errors:
        process = subprocess.Popen(
            [*COMMAND, str(configuration)],
            cwd=directory,
            env=environment(),
            stdout=writer,
            stderr=writer if shares_errors else errors,
        )
    os.close(writer)
    try:
        yield port, process
    finally:
        process.kill()
        process.wait()
        os.close(reader)


@pytest.mark.parametrize(("is_full", "shares_errors"), [(False, False), (True, True)])
def test_a_stalled_output_holds_up_nothing(
    tmp_path: Path, is_full: bool, shares_errors: bool
) -> None:
    beside = tmp_path / "beside.log"
    with stalled_server(tmp_path, is_full=is_full, shares_errors=shares_errors) as (port, process):
        wait_until(lambda: beside.exists() and "initialization completed" in beside.read_text())
        for name in ("early-client", "late-client"):
            with RawPeer(port) as peer:
                assert peer.log_on(name, "json")["status"] == "success"
                peer.socket.sendall(
                    frame({"c": "publish", "t": "any"}, b"{}") * MESSAGES
                    + frame({"c": "flush", "cid": "f", "a": "completed"})
                )
                peer.receive()
            wait_until(lambda: name in beside.read_text())  # noqa: B023 - called at once
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    assert "FF-0002" in beside.read_text()
    if not shares_errors:
        assert "these targets take no data: stdout" in (tmp_path / "err").read_text()
