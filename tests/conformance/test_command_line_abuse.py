"""ampServer in places where it has nobody to talk to, and as people mistype it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.server import COMMAND, environment, free_port
from tests.support.waiting import WAIT_SECONDS

GOOD = "<AMPSConfig><Name>abused</Name></AMPSConfig>"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a good configuration."""
    (tmp_path / "good.xml").write_text(GOOD)
    return tmp_path


def shell(directory: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line in which `ampServer` stands for the command."""
    command = " ".join(COMMAND)
    return subprocess.run(
        ["bash", "-c", line.replace("ampServer", command)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env=environment(),
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ampServer -D", "argument -D: expected one argument; see ampServer --help"),
        ("ampServer good.xml -DPORT", "-DPORT is no definition: expected -DNAME=VALUE"),
        ("ampServer -D '=5' good.xml", "expected -DNAME=VALUE"),
        ("ampServer ''", "expected the path of a configuration file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(directory: Path, line: str, complaint: str) -> None:
    run = shell(directory, line)
    assert run.returncode == 2
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ampServer --dump-config good.xml >/dev/full", "No space left on device"),
        ("ampServer --print-completion bash >/dev/full", "No space left on device"),
        ("ampServer --version >&-", "standard output is closed"),
    ],
)
def test_what_cannot_be_printed_is_one_line(directory: Path, line: str, complaint: str) -> None:
    """What is wrong is said, whatever is closed or full."""
    run = shell(directory, line)
    assert run.returncode == 1
    assert complaint in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("streams", ["2>/dev/full", "2>&-", "<&- >&- 2>&-"])
def test_a_verdict_needs_no_reader(directory: Path, streams: str) -> None:
    """The exit code tells it when nothing can be printed."""
    assert shell(directory, f"ampServer --verify-config good.xml {streams}").returncode == 0
    (directory / "bad.xml").write_text("<AMPSConfig/>")
    assert shell(directory, f"ampServer --verify-config bad.xml {streams}").returncode == 1


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("--sample-config", 0, ""),
        ("--print-schema", 0, ""),
        ("--print-completion bash", 0, ""),
        ("--dump-config good.xml", 0, ""),
        ("--explain good.xml AMPSConfig/Name", 0, ""),
        ("--verify-config --json bad.xml", 1, "bad.xml cannot be used"),
        ("--diff good.xml other.xml", 1, "2 differences"),
    ],
)
def test_a_reader_that_leaves_early_changes_nothing(
    directory: Path, line: str, code: int, said: str
) -> None:
    """As of any other command in a pipe: nothing is said of that, and the verdict is the same."""
    (directory / "bad.xml").write_text("<AMPSConfig/>")
    (directory / "other.xml").write_text(GOOD.replace("abused", "other"))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        run = subprocess.run(
            [*COMMAND, *line.split()],
            cwd=directory,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
            env=environment(),
        )
    assert run.returncode == code
    assert "pipe" not in run.stderr
    assert said in run.stderr
    assert bool(run.stderr) == bool(said)


def test_bytes_that_are_no_text_are_shown_and_passed_on(directory: Path) -> None:
    """Names of files and options, and values of variables, may hold any byte."""
    os.rename(directory / "good.xml", os.fsencode(directory) + b"/odd\xff.xml")
    run = shell(directory, r"ampServer $'--\xfe' --verify-config $'odd\xff.xml'")
    assert run.returncode == 0
    assert run.stderr.splitlines() == [
        r"ampServer: --\udcfe is no option of this server and is ignored",
        r"odd\udcff.xml is valid: 0 errors, 0 warnings",
    ]
    (directory / "variable.xml").write_text(GOOD.replace("abused", "${ODD}"))
    run = shell(directory, r"ODD=$'\xff' ampServer --verify-config variable.xml")
    assert "the value of variable 'ODD' holds a character that XML does not allow" in run.stderr


def test_a_graph_is_all_that_is_asked_for(directory: Path) -> None:
    """It is printed without --verify-config too, and nothing is started."""
    assert shell(directory, "ampServer --graph good.xml").stdout.startswith("instance abused: ")


def test_a_configuration_out_of_a_pipe(directory: Path) -> None:
    """One that nobody writes to is empty, not waited for."""
    run = shell(directory, "ampServer --verify-config <(cat good.xml)")
    assert run.returncode == 0
    os.mkfifo(directory / "silent.xml")
    run = shell(directory, "ampServer --verify-config silent.xml")
    assert (run.returncode, run.stderr.splitlines()[0]) == (
        1,
        "silent.xml: error: is empty; expected an XML file",
    )


def test_a_server_that_was_started_without_streams_runs(directory: Path) -> None:
    """Its sockets and files do not become standard output."""
    (directory / "run.xml").write_text(
        "<AMPSConfig><Name>deaf</Name>"
        "<Logging><Target><Protocol>file</Protocol><FileName>deaf.log</FileName>"
        "<Level>info</Level></Target></Logging>"
        "<Transports><Transport><Name>t</Name><Type>tcp</Type>"
        f"<InetAddr>127.0.0.1:{free_port()}</InetAddr></Transport></Transports></AMPSConfig>"
    )
    script = (
        "ampServer run.xml <&- >&- 2>&- & server=$!; "
        "until grep -q 'initialization completed' deaf.log; do sleep 0.1; done 2>/dev/null; "
        "kill $server; wait $server"
    )
    assert shell(directory, script).returncode == 0
    log = (directory / "deaf.log").read_text()
    assert "AMPS instance 'deaf' is starting: version" in log
    assert "Command line: " in log
    assert "shutdown completed" in log
