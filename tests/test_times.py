"""`pytest --times`: what it says of a run."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.support.server import ROOT

FILE = "tests/conformance/test_heartbeat.py"


def test_a_run_tells_of_its_files_fixtures_and_servers() -> None:
    """As the processes of tests measured them, added up by the one that began them."""
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "1", "--times", FILE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    passed = re.search(r"^(\.+) +\[100%\]$", run.stdout, re.MULTILINE)
    assert passed is not None
    tables = run.stdout.partition("times of ")[2]
    rows = re.findall(r"^ +([\d.]+) +[\d.]+ +(\d+)  (.+)$", tables, re.MULTILINE)
    times = {name: (float(seconds), int(count)) for seconds, count, name in rows}
    assert times[FILE][0] > 0
    assert times[FILE][1] == len(passed[1])
    assert times["tests/conformance: server"][1] == 1
    assert times["servers, until they serve"][1] == 1
