"""A server starts again with its files on every interpreter of this minor version that is there.

Debian 12's is 3.11.2, whose `mmap.find` reads beyond the map (CPython issue 105235).
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.support.long_form import spread
from tests.support.server import (
    CONFIGURATION,
    RunningServer,
    free_port,
    wait_until_started,
)

ROOT: Final = Path(__file__).parents[2]
NAME: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
PLACES: Final = ("/usr/bin", "/usr/local/bin", *os.get_exec_path())
INTERPRETERS: Final = sorted(
    {
        str(path.resolve())
        for place in PLACES
        if (path := Path(place, NAME)).exists() and b"ELF" in path.read_bytes()[:4]
    }
    | {str(Path(sys.executable).resolve())}
)
ELEMENTS: Final = """
<SOW>
  <Topic>
    <Name>kept</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>kept.sow</FileName>
  </Topic>
</SOW>
"""


def run(interpreter: str, directory: Path, *words: str) -> subprocess.Popen[bytes]:
    libraries = sysconfig.get_path("purelib")
    with (directory / "stdout.log").open("wb") as output:
        return subprocess.Popen(
            [interpreter, "-m", *words],
            cwd=directory,
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{libraries}"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


@pytest.mark.parametrize("interpreter", spread(INTERPRETERS, 1))
def test_a_server_starts_again_with_its_records(tmp_path: Path, interpreter: str) -> None:
    port = free_port()
    text = CONFIGURATION.format(port=port, elements=ELEMENTS, transports="", level="info")
    (tmp_path / "config.xml").write_text(text)
    for start in range(2):
        process = run(interpreter, tmp_path, "server.cli.amp_server", "config.xml")
        server = RunningServer(port, process, tmp_path / "stdout.log")
        try:
            wait_until_started(server)
            with server.log_on() as peer:
                peer.publish("kept", b'{"id":%d,"text":"%b"}' % (start, b"x" * 100_000))
                peer.flush()
                peer.send({"c": "sow", "t": "kept", "cid": "1", "a": "completed"})
                found = 0
                while (heard := peer.receive())[0]["c"] != "ack":
                    found += heard[1].count(b'"id"')
                assert found == start + 1
        finally:
            process.kill()
            process.wait()
    dump = run(interpreter, tmp_path, "server.cli.amps_sow_dump", "kept.sow")
    assert dump.wait() == 0, (tmp_path / "stdout.log").read_text()
    assert (tmp_path / "stdout.log").read_bytes().count(b'"id"') == 2
