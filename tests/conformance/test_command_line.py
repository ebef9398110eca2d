"""ampServer as it is typed: options, exit codes, and what is printed where."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.raw import RawPeer
from tests.support.server import (
    COMMAND,
    CONFIGURATION,
    free_port,
    running_configuration,
    running_server,
)

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "sample_configs").glob("*.xml"))
BROKEN = "<AMPSConfig>\n  <Nam>x</Nam>\n</AMPSConfig>\n"


def amp_server(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def configuration(directory: Path, elements: str = "") -> Path:
    """A good configuration on a free port."""
    path = directory / "config.xml"
    path.write_text(
        CONFIGURATION.format(port=free_port(), elements=elements, transports="", level="info")
    )
    return path


def test_a_good_configuration_verifies_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Code 0, a verdict, and no file is written, not even by file logs."""
    path = configuration(
        tmp_path,
        "<Logging><Target><Protocol>file</Protocol><FileName>x.log</FileName>"
        "<Level>info</Level></Target></Logging>",
    )
    path.write_text(re.sub(r"(?s)<Logging>.*?</Logging>", "", path.read_text(), count=1))
    run = amp_server("--verify-config", path, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr.endswith("is valid: 0 errors, 0 warnings\n")
    assert os.listdir(tmp_path) == ["config.xml"]


def test_a_broken_configuration_is_refused_by_the_check_and_by_the_start(tmp_path: Path) -> None:
    """Every problem is printed with its line, and the exit code is 1."""
    path = tmp_path / "broken.xml"
    path.write_text(BROKEN)
    for options in (["--verify-config"], []):
        run = amp_server(*options, "broken.xml", cwd=tmp_path)
        assert run.returncode == 1
        lines = run.stderr.splitlines()
        assert lines[-1] == "broken.xml cannot be used: 2 errors, 0 warnings"
        assert any(line.startswith("broken.xml:2: error: ") and "Name" in line for line in lines)
        assert "Traceback" not in run.stderr + run.stdout


@pytest.mark.parametrize("path", ["missing.xml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, path: str) -> None:
    """One line that says what is wrong with it."""
    run = amp_server(path, cwd=tmp_path)
    assert run.returncode == 1
    assert path in run.stderr
    assert "Traceback" not in run.stderr


def test_no_configuration_at_all() -> None:
    """The usage, and what was expected."""
    run = amp_server()
    assert run.returncode == 1
    assert "usage: ampServer" in run.stderr
    assert "expected the path of a configuration file" in run.stderr


def test_version_and_help_exit_with_success() -> None:
    """The version goes to standard output, the help to standard error, as AMPS does."""
    version, usage = amp_server("--version"), amp_server("--help")
    assert (version.returncode, usage.returncode) == (0, 0)
    assert "5.3.5" in version.stdout
    assert usage.stdout == ""
    for option in ("--verify-config", "--dump-config", "--sample-config", "--daemon", "-D"):
        assert option in usage.stderr


def test_the_sample_configuration_verifies(tmp_path: Path) -> None:
    """What is printed is a configuration that can be run."""
    path = tmp_path / "sample.xml"
    path.write_text(amp_server("--sample-config").stdout)
    assert amp_server("--verify-config", path).returncode == 0


def test_definitions_win_over_the_environment_and_reach_the_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-D sets what ${NAME} expands to."""
    monkeypatch.setenv("WHO", "environment")
    path = tmp_path / "config.xml"
    path.write_text("<AMPSConfig><Name>${WHO}-${WHAT}</Name></AMPSConfig>")
    dump = amp_server("-DWHO=option", "-DWHAT=a=b", "--dump-config", path)
    assert dump.returncode == 0
    assert "<Name>option-a=b</Name>" in dump.stdout


def test_the_graph_stands_alone_on_standard_output(tmp_path: Path) -> None:
    """As text and as a digraph, fit for a pipe."""
    path = configuration(tmp_path)
    text = amp_server("--verify-config", "--graph", path).stdout
    assert re.search(r"2\. transport any-tcp \(amps over tcp at 127\.0\.0\.1:\d+\)", text)
    dot = amp_server("--verify-config", "--graphviz", path).stdout
    assert dot.startswith('digraph "test-instance" {')
    assert dot.endswith("}\n")


def test_unknown_flags_are_warned_about_and_ignored(tmp_path: Path) -> None:
    """A flag that this server does not have does not keep it from its work."""
    run = amp_server("--no-such-flag", "--verify-config", configuration(tmp_path))
    assert run.returncode == 0
    assert "--no-such-flag is no option of this server and is ignored" in run.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stop_signals_end_the_server_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    """Code 0, with clients connected and disconnected."""
    with running_server(tmp_path) as server, server.log_on() as peer:
        assert server.stop(how) == 0
        assert peer.is_disconnected()
        assert f"shutdown requested by signal {how.name}" in server.log()
        assert "shutdown completed" in server.log()
        assert "Traceback" not in server.log()


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    """The transport, the address and the reason; code 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = tmp_path / "config.xml"
        path.write_text(CONFIGURATION.format(port=port, elements="", transports="", level="none"))
        run = amp_server(path)
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        f"{path}:5: transport any-tcp cannot listen on 127.0.0.1:{port}: Address already in use"
    ]


def test_a_daemon_tells_how_its_start_went(tmp_path: Path) -> None:
    """The command returns when clients can connect, and with code 1 when they never will."""
    name = f"amperage-test-{os.getpid()}"
    path = configuration(tmp_path, f"<ProcessName>{name}</ProcessName>")
    text = path.read_text()
    path.write_text(re.sub(r"(?s)<Logging>.*?</Logging>", "", text))
    port = int(re.search(r"127\.0\.0\.1:(\d+)", text).group(1))  # type: ignore[union-attr]  # it is there
    started = subprocess.run(
        [*COMMAND, "--daemon", str(path)],
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert started.returncode == 0
    with RawPeer(port) as peer:
        assert peer.log_on()["status"] == "success"
        second = amp_server("--daemon", path)
        assert (second.returncode, "Address already in use" in second.stderr) == (1, True)
        pid = _process_named(name)
        os.kill(pid, signal.SIGTERM)
        assert peer.is_disconnected()


def _process_named(name: str) -> int:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and name in _command_line(entry):
                return int(entry.name)
        time.sleep(0.05)
    raise AssertionError(f"there is no process named {name}")


def _command_line(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_configuration_runs_as_it_is(tmp_path: Path, sample: Path) -> None:
    """Verified without a warning, then started, on other ports than those of its text."""
    text = sample.read_text().replace("${REGION}", "test").replace("${PORT}", "9007")
    text = text.replace("parts/", f"{sample.parent}/parts/")
    for port in set(re.findall(r"\b90[0-9]7\b", text)):
        text = re.sub(rf"(<InetAddr>.*?){port}", rf"\g<1>{free_port()}", text)
    with running_configuration(tmp_path, text, 0) as server:
        assert " warning: " not in server.log()
        assert server.stop() == 0


def test_at_least_five_sample_configurations() -> None:
    """The folder is not empty by accident."""
    assert len(SAMPLES) >= 5
