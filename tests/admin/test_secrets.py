"""Credentials in configurations: no command, no log and no page shows them, wherever they stand."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from server.cli import amps_doctor
from tests.cli.support import contents
from tests.support.server import RunningServer, amp_server, free_port, running_server

ELEMENTS = """
  <Admin><InetAddr>127.0.0.1:{port}</InetAddr><Header>X-Api-Key: hidden{n}1</Header></Admin>
  <Modules><Module><Name>web</Name><Library>libamps_http_entitlement.so</Library><Options>
    <ResourceURI>http://h/p?token=hidden{n}2&amp;api_key=${{API_KEY}}&amp;of={n}</ResourceURI>
  </Options></Module></Modules>
  <Actions><Action>
    <On><Module>amps-action-on-schedule</Module><Options><Every>1h</Every></Options></On>
    <Do><Module>amps-action-do-execute-system</Module><Options>
      <Command>curl -u me:hidden{n}3 -H "Authorization: Bearer hidden{n}4" h/${{PW}}/{n}</Command>
    </Options></Do>
  </Action></Actions>
"""
OPTIONS = ("-D", "PW=hidden by its name", "-DAPI_KEY=hidden5", "-D", "PLACE=here")
SECRET = re.compile("hidden.{,9}")


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[RunningServer]:
    elements = ELEMENTS.format(port=port, n=0)
    directory = tmp_path_factory.mktemp("a")
    with running_server(directory, elements=elements, prepare=begin, options=OPTIONS) as one:
        yield one


def begin() -> None:
    """Let the process be called as a server that is started from a shell."""
    sys.argv = ["ampServer", *OPTIONS, "config.xml"]


@pytest.fixture
def config(server: RunningServer) -> Path:
    return server.log_file.parent / "config.xml"


def test_the_log_of_the_start(server: RunningServer) -> None:
    log = server.log()
    assert SECRET.findall(log) == []
    assert "PLACE=here" in re.findall("00-0030.*", log)[0]
    assert "PW=********" in log
    assert "token=********&amp;api_key=********&amp;of=0" in log


def test_the_configuration_that_is_served(server: RunningServer, port: int) -> None:
    assert server.process.poll() is None
    with urlopen(f"http://127.0.0.1:{port}/amps/instance/config.xml") as reply:
        text = reply.read().decode()
    assert SECRET.findall(text) == []
    assert 'curl -u me:******** -H "Authorization: ********" h/********/0' in text


COMMANDS = {
    "--explain": ["--explain", "OLD", "ResourceURI", "Command", "Header"],
    "--explain --json": ["--explain", "--json", "OLD", "ResourceURI", "Command", "Header"],
    "--explain-actions": ["--explain-actions", "OLD"],
    "--diff": ["--diff", "OLD", "NEW"],
    "--diff --json": ["--diff", "--json", "OLD", "NEW"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_prints(name: str, config: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.xml"
    text = config.read_text()
    new.write_text(text.replace("hidden0", "hidden1").replace("of=0", "of=1").replace("/0<", "/1<"))
    paths = {"OLD": config, "NEW": new}
    run = amp_server(*OPTIONS, *(paths.get(word, word) for word in COMMANDS[name]))
    assert SECRET.findall(run.stdout + run.stderr) == []
    assert "curl -u me:********" in run.stdout
    assert "h/********/" in run.stdout


@pytest.mark.parametrize("option", ["--graph", "--graphviz"])
def test_what_a_drawing_shows(option: str, tmp_path: Path) -> None:
    path = tmp_path / "config.xml"
    path.write_text(
        "<AMPSConfig><Name>a</Name><Logging><Target><Protocol>file</Protocol><Level>info</Level>"
        "<FileName>/tmp/${PW}/log</FileName></Target></Logging></AMPSConfig>"
    )
    run = amp_server(*OPTIONS, option, path)
    assert run.returncode == 0
    assert SECRET.findall(run.stdout + run.stderr) == []
    assert "/tmp/********/log" in run.stdout


PRINTED = {"pipe": (False, "<Name>hidden by its name</Name>"), "terminal": (True, "<Name>********")}


@pytest.mark.parametrize("where", PRINTED)
def test_a_dump_can_run_and_hides_on_a_terminal_what_is_secret(where: str, tmp_path: Path) -> None:
    on_terminal, expected = PRINTED[where]
    path = tmp_path / "config.xml"
    path.write_text("<AMPSConfig><Name>${PW}</Name></AMPSConfig>")
    near, far = pty.openpty() if on_terminal else os.pipe()
    try:
        command = [
            sys.executable,
            "-m",
            "server.cli.amp_server",
            *OPTIONS,
            "--dump-config",
            str(path),
        ]
        run = subprocess.run(command, stdout=far, stderr=subprocess.PIPE, text=True, check=True)
        text = os.read(near, 65_536).decode()
    finally:
        os.close(near)
        os.close(far)
    assert expected in text
    assert ("a file or a pipe gets them" in run.stderr) is on_terminal


WRONG = {
    "whole": ("PW", "'********'"),
    "shortened": ("LONG_PW", "********...'"),
    "in two lines": ("PEM_SECRET", "'********'"),
}
"""What is given for a number, and how an error quotes it."""


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_an_error_quotes_no_secret_variable(
    name: str, as_json: tuple[str, ...], tmp_path: Path
) -> None:
    variable, expected = WRONG[name]
    path = tmp_path / "config.xml"
    path.write_text(
        "<AMPSConfig><Name>a</Name><Admin><InetAddr>127.0.0.1:8085</InetAddr>"
        f"<Interval>${{{variable}}}</Interval></Admin></AMPSConfig>"
    )
    values = {"LONG_PW": "hidden" + "x" * 100, "PEM_SECRET": "hidden\nhidden"}
    defined = [f"-D{name}={value}" for name, value in values.items()]
    run = amp_server(*OPTIONS, *defined, "--verify-config", *as_json, path)
    assert run.returncode == 1
    assert expected in run.stderr
    assert SECRET.findall(run.stdout + run.stderr) == []


NOT_STARTED = {
    "log": "<Logging><Target><Protocol>file</Protocol><Level>info</Level>"
    "<FileName>/proc/${PW}/log</FileName></Target></Logging>",
    "journal": "<Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>"
    "<TransactionLog><JournalDirectory>/proc/${PW}/j</JournalDirectory>"
    "<Topic><Name>a</Name><MessageType>json</MessageType></Topic></TransactionLog>",
}


@pytest.mark.parametrize("part", NOT_STARTED)
def test_a_start_that_fails_tells_no_secret_variable(part: str, tmp_path: Path) -> None:
    path = tmp_path / "config.xml"
    path.write_text(f"<AMPSConfig><Name>a</Name>{NOT_STARTED[part]}</AMPSConfig>")
    run = amp_server(*OPTIONS, path)
    assert run.returncode == 1
    assert "/proc/********" in run.stderr
    assert SECRET.findall(run.stdout + run.stderr) == []


def test_what_the_doctor_packs(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    amps_doctor.main(["--config", str(config), *OPTIONS])
    (archive,) = tmp_path.glob("*.tar.gz")
    files = contents(archive)
    assert "h/********/0" in files["configuration/config.xml"]
    for text in (capsys.readouterr().out, *files.values()):
        assert SECRET.findall(text) == []


def test_an_address_with_a_password_is_quoted_without_it(tmp_path: Path) -> None:
    path = tmp_path / "config.xml"
    path.write_text(
        "<AMPSConfig><Name>a</Name><Admin><InetAddr>me:hidden@host:9007</InetAddr></Admin>"
        "</AMPSConfig>"
    )
    run = amp_server("--verify-config", path)
    assert run.returncode == 1
    assert "Admin/InetAddr: 'me:********@host:9007' is not an address" in run.stderr
