"""ampServer in places where it has nobody to talk to, and as people mistype it.

A shell starts the command where its streams are closed. In most other cases a fork runs it, which
starts faster: see `tests.support.forked` and `tests.support.quick`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from server.cli import amp_server as cli
from tests.support.forked import context
from tests.support.long_form import spread
from tests.support.quick import quick_command
from tests.support.server import COMMAND, amp_server, environment, free_port
from tests.support.waiting import WAIT_SECONDS

GOOD = "<AMPSConfig><Name>abused</Name></AMPSConfig>"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a good configuration."""
    (tmp_path / "good.xml").write_text(GOOD)
    return tmp_path


def shell(
    directory: Path, line: str, command: Sequence[str] = COMMAND
) -> subprocess.CompletedProcess[str]:
    """Run a line in which `ampServer` stands for the command."""
    return subprocess.run(
        ["bash", "-c", line.replace("ampServer", shlex.join(command))],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        env=environment(),
    )


PIPE_WITHOUT_READER = "a pipe without reader"


def run_with_output(
    directory: Path, words: list[str], stdout: str, stderr: Path | None = None
) -> tuple[int | None, str]:
    """Run the command in a fork; return its exit code and what it wrote to standard error.

    Args:
        directory: where it runs.
        words: its arguments.
        stdout: the path of its standard output, or `PIPE_WITHOUT_READER`.
        stderr: the path of its standard error; None for a file in the directory.
    """
    errors = stderr or directory / "stderr.txt"
    process = context().Process(target=_run, args=(directory, words, stdout, errors))
    process.start()
    process.join(WAIT_SECONDS)
    if process.exitcode is None:
        process.kill()
    return process.exitcode, errors.read_text() if stderr is None else ""


def _run(directory: Path, words: list[str], stdout: str, errors: Path) -> None:
    if stdout == PIPE_WITHOUT_READER:
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open(stdout, os.O_WRONLY)
    os.dup2(writer, 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    os.chdir(directory)
    sys.argv = [cli.__file__, *words]
    sys.exit(cli.main())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-D"], "argument -D: expected one argument; see ampServer --help"),
        (["good.xml", "-DPORT"], "-DPORT is no definition: expected -DNAME=VALUE"),
        (["-D", "=5", "good.xml"], "expected -DNAME=VALUE"),
        ([""], "expected the path of a configuration file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    directory: Path, words: list[str], complaint: str
) -> None:
    run = amp_server(*words, cwd=directory)
    assert run.returncode == 2
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1


def test_what_cannot_be_printed_is_one_line(directory: Path) -> None:
    """What is wrong is said where standard output is closed."""
    run = shell(directory, "ampServer --version >&-")
    assert run.returncode == 1
    assert "standard output is closed" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("line", ["--dump-config good.xml", "--print-completion bash"])
def test_what_finds_no_space_is_one_line(directory: Path, line: str) -> None:
    code, said = run_with_output(directory, line.split(), "/dev/full")
    assert code == 1
    assert "No space left on device" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", ["good.xml", "bad.xml"])
def test_a_verdict_needs_no_space(directory: Path, name: str) -> None:
    """The exit code tells it when standard error is full."""
    (directory / "bad.xml").write_text("<AMPSConfig/>")
    words = ["--verify-config", name]
    code, _ = run_with_output(directory, words, os.devnull, Path("/dev/full"))
    assert code == (name == "bad.xml")


@pytest.mark.parametrize(
    ("name", "streams", "code"),
    spread([("good.xml", "<&- >&- 2>&-", 0), ("bad.xml", "2>&-", 1)], 1, several=True),
)
def test_a_verdict_needs_no_reader(directory: Path, name: str, streams: str, code: int) -> None:
    """The exit code tells it when nothing can be printed."""
    (directory / "bad.xml").write_text("<AMPSConfig/>")
    assert shell(directory, f"ampServer --verify-config {name} {streams}").returncode == code


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
    found, stderr = run_with_output(directory, line.split(), PIPE_WITHOUT_READER)
    assert found == code
    assert "pipe" not in stderr
    assert said in stderr
    assert bool(stderr) == bool(said)


def test_a_process_whose_reader_leaves_early_ends_like_any_other(directory: Path) -> None:
    """Also while the interpreter ends: a real process, and one verdict."""
    (directory / "bad.xml").write_text("<AMPSConfig/>")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        run = subprocess.run(
            [*COMMAND, "--verify-config", "--json", "bad.xml"],
            cwd=directory,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
            env=environment(),
        )
    assert run.returncode == 1
    assert "pipe" not in run.stderr
    assert "bad.xml cannot be used" in run.stderr


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
    odd = os.fsdecode(b"\xff")
    run = amp_server("--verify-config", "variable.xml", cwd=directory, ODD=odd)
    assert "the value of variable 'ODD' holds a character that XML does not allow" in run.stderr


def test_a_graph_is_all_that_is_asked_for(directory: Path) -> None:
    """It is printed without --verify-config too, and nothing is started."""
    graph = amp_server("--graph", "good.xml", cwd=directory).stdout
    assert graph.startswith("instance abused: ")


def test_a_configuration_out_of_a_pipe(directory: Path) -> None:
    """One that nobody writes to is empty, not waited for."""
    line = "cat good.xml | ampServer --verify-config /dev/fd/0"
    run = shell(directory, line, quick_command("server.cli.amp_server"))
    assert (run.returncode, run.stderr) == (0, "/dev/fd/0 is valid: 0 errors, 0 warnings\n")
    os.mkfifo(directory / "silent.xml")
    run = amp_server("--verify-config", "silent.xml", cwd=directory)
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
