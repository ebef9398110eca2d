"""The scripts that dpkg and rpm run, on a host whose systemctl does this test's bidding."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.server import ROOT
from tests.support.waiting import WAIT_SECONDS


def run_script(
    name: str, directory: Path, systemctl: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a script on a host with systemd, whose systemctl is a script of its own."""
    programs = {"systemctl": systemctl, "systemd-sysusers": "exit 0"}  # the host gets no user
    binaries = directory / "bin"
    binaries.mkdir()
    for program, commands in programs.items():
        (binaries / program).write_text(f"#!/bin/sh\n{commands}\n")
        (binaries / program).chmod(0o755)
    text = (ROOT / "packaging" / "linux" / name).read_text()
    return subprocess.run(
        ["/bin/sh", "-s", *words],
        input=text.replace("/run/systemd/system", str(directory)),
        env={"PATH": f"{binaries}:/usr/bin:/bin", "DPKG_ROOT": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="takes systemctl")
def test_the_removal_disables_all_instances(tmp_path: Path) -> None:
    root = tmp_path / "root"
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for unit in (ROOT / "server/cli/service").glob("*.service"):
        shutil.copy(unit, units)
    systemctl = f"{shutil.which('systemctl')} --root={root}"
    enabled = ["amps.service", "amps@orders.service", "amps@prices.service"]
    subprocess.run([*systemctl.split(), "enable", *enabled], check=True, capture_output=True)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    assert sorted(os.listdir(wants)) == enabled
    only_disable = f'[ "$1" != disable ] || exec {systemctl} "$@"'
    done = run_script("before-remove.sh", tmp_path, only_disable, "remove")
    assert done.returncode == 0, done.stderr
    assert not wants.exists() or os.listdir(wants) == []


def test_an_instance_that_does_not_start_again_is_named_and_fails_no_upgrade(
    tmp_path: Path,
) -> None:
    done = run_script("after-install.sh", tmp_path, '[ "$1" != try-restart ]', "configure")
    assert done.returncode == 0, done.stderr
    assert "an instance did not start again; see systemctl --failed" in done.stderr
