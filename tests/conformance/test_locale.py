"""File names of any language, in any locale."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.server import CONFIGURATION, environment, free_port
from tests.support.waiting import wait_until

LOG = "<Logging><Target><Protocol>file</Protocol><FileName>ü.log</FileName></Target></Logging>"


def test_a_server_takes_file_names_that_the_locale_does_not_have(tmp_path: Path) -> None:
    text = CONFIGURATION.format(port=free_port(), elements="", transports="", level="info")
    begin, end = text.index("<Logging>"), text.index("</Logging>") + len("</Logging>")
    (tmp_path / "config.xml").write_text(text[:begin] + LOG + text[end:], "utf-8")
    variables = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"}
    process = subprocess.Popen(
        [sys.executable, "-m", "server.cli.amp_server", "config.xml"],
        cwd=tmp_path,
        env=environment(**variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        log = tmp_path / "ü.log"
        wait_until(
            lambda: log.exists() or process.poll() is not None, lambda: "there is no log file"
        )
        assert log.exists(), process.communicate()[1].decode()
    finally:
        process.kill()
        process.wait()
