"""ampServer as it is typed: options, exit codes, and what is printed where."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.forked import ForkedProcess
from tests.support.raw import RawPeer
from tests.support.server import (
    CONFIGURATION,
    ROOT,
    amp_server,
    free_port,
    running_configuration,
    running_server,
)
from tests.support.waiting import WAIT_SECONDS, comes_true, wait_until

SAMPLES = sorted((ROOT / "sample_configs").glob("*.xml"))
BROKEN = "<AMPSConfig>\n  <Nam>x</Nam>\n</AMPSConfig>\n"


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
    """One line that says what was expected."""
    run = amp_server()
    assert (run.returncode, run.stderr) == (
        2,
        "ampServer: expected the path of a configuration file; see ampServer --help\n",
    )


def test_version_and_help_exit_with_success() -> None:
    """The version goes to standard output, the help to standard error, as AMPS does."""
    version, usage = amp_server("--version"), amp_server("--help")
    assert (version.returncode, usage.returncode) == (0, 0)
    assert amp_server("-h").stderr == usage.stderr
    assert "5.3.5" in version.stdout
    assert usage.stdout == ""
    for option in ("--verify-config", "--dump-config", "--sample-config", "--daemon", "-D"):
        assert option in usage.stderr


def test_the_sample_configuration_verifies(tmp_path: Path) -> None:
    """What is printed is a configuration that can be run."""
    path = tmp_path / "sample.xml"
    path.write_text(amp_server("--sample-config").stdout)
    run = amp_server("--verify-config", path)
    assert (run.returncode, run.stderr) == (0, f"{path} is valid: 0 errors, 0 warnings\n")


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


def test_a_queue_that_has_its_messages_from_publishers_is_fed_by_no_topic(tmp_path: Path) -> None:
    """Its underlying topic is its own, unless another is given."""
    elements = """
      <TransactionLog><JournalDirectory>j</JournalDirectory>
        <Topic><Name>.*</Name><MessageType>json</MessageType></Topic></TransactionLog>
      <SOW><Queue><Name>own</Name><MessageType>json</MessageType></Queue>
        <Topic><Name>below</Name><MessageType>json</MessageType><Key>/id</Key>
          <Durability>transient</Durability></Topic>
        <Queue><Name>over</Name><MessageType>json</MessageType>
          <UnderlyingTopic>below</UnderlyingTopic></Queue></SOW>"""
    text = amp_server("--graph", configuration(tmp_path, elements)).stdout
    assert re.findall("fed by .*", text) == ["fed by SOW topic [json].[below]"]


def test_unknown_flags_are_warned_about_and_ignored(tmp_path: Path) -> None:
    """A flag that this server does not have does not keep it from its work."""
    run = amp_server("--no-such-flag", "--verify-config", configuration(tmp_path))
    assert run.returncode == 0
    assert "--no-such-flag is no option of this server and is ignored" in run.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--verfy-config", "--verify-config"),
        ("-verify-config", "--verify-config"),
        ("--deamon", "--daemon"),
    ],
)
def test_a_mistyped_option_starts_nothing(tmp_path: Path, typed: str, meant: str) -> None:
    """It is named, with the one that was meant."""
    run = amp_server(typed, configuration(tmp_path))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == f"ampServer: {typed} is no option; did you mean {meant}?\n"


def test_all_configurations_that_are_given_are_checked(tmp_path: Path) -> None:
    """In their order, wherever options stand; one that is broken is enough for exit code 1."""
    configuration(tmp_path)
    (tmp_path / "broken.xml").write_text(BROKEN)
    verdicts = ["config.xml is valid: 0 errors, 0 warnings"]
    verdicts += ["broken.xml cannot be used: 2 errors, 0 warnings", verdicts[0]]
    for arguments in (
        ["--verify-config", "config.xml", "broken.xml", "config.xml"],
        ["config.xml", "--graph", "broken.xml", "config.xml"],
    ):
        run = amp_server(*arguments, cwd=tmp_path)
        assert run.returncode == 1
        assert [line for line in run.stderr.splitlines() if "warnings" in line] == verdicts
    assert amp_server("--graph", "config.xml", "config.xml", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("options", [(), ("--dump-config",), ("--daemon",)])
def test_only_one_configuration_is_run_or_printed(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A second one is refused before anything happens."""
    run = amp_server(*options, configuration(tmp_path), "other.xml")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "ampServer: expected one configuration file, and other.xml is another\n"


def test_a_check_tells_what_a_start_would_not_find(tmp_path: Path) -> None:
    """Warnings only, each at its line: it may be checked elsewhere than it will run."""
    (tmp_path / "there").mkdir()
    (tmp_path / "there.pem").touch()
    (tmp_path / "config.xml").write_text(
        """<AMPSConfig>
<Name>n</Name>
<Transports>
<Transport><Name>a</Name><Type>tcps</Type><InetAddr>localhost:9007</InetAddr>
<Certificate>missing.crt</Certificate>
<PrivateKey>missing.key</PrivateKey>
<VerifyClient>true</VerifyClient>
<CAFile>missing.pem</CAFile>
</Transport>
<Transport><Name>b</Name><Type>tcps</Type><InetAddr>localhost:9017</InetAddr>
<Certificate>there.pem</Certificate><PrivateKey>there.pem</PrivateKey>
<CAFile>nobody_reads_it.pem</CAFile>
</Transport>
<Transport><Name>c</Name><Type>amps-unix</Type>
<FileName>run/amps.sock</FileName>
</Transport>
</Transports>
<Logging>
<Target><Protocol>file</Protocol><Level>info</Level>
<FileName>log/%Y/amps.log</FileName></Target>
<Target><Protocol>file</Protocol><Level>info</Level>
<FileName>there.pem/%Y/amps.log</FileName></Target>
<Target><Protocol>gzip</Protocol><Level>info</Level><FileName>there/a</FileName></Target>
</Logging>
<TransactionLog><JournalDirectory>j</JournalDirectory>
<Topic><Name>t</Name><MessageType>json</MessageType></Topic></TransactionLog>
<Replication><Destination><Name>d</Name>
<Topic><Name>t</Name><MessageType>json</MessageType></Topic>
<Transport><Type>amps-replication-secure</Type><InetAddr>localhost:1</InetAddr>
<VerifyClient>true</VerifyClient><CAFile>absent.pem</CAFile></Transport>
</Destination></Replication>
</AMPSConfig>
"""
    )
    run = amp_server("--verify-config", "config.xml", cwd=tmp_path)
    year = time.strftime("%Y")
    obstacle = f"the directory there.pem/{year} cannot be made: there.pem is no directory"
    hint = "; a start would fail, if this is the machine that it is for"
    unchecked = (
        "has no effect: without VerifyClient no certificate of the other side is checked; "
        "add <VerifyClient>true</VerifyClient>"
    )
    assert run.stderr.splitlines() == [
        f"config.xml:5: warning: Transport/Certificate: there is no file missing.crt{hint}",
        f"config.xml:6: warning: Transport/PrivateKey: there is no file missing.key{hint}",
        f"config.xml:8: warning: Transport/CAFile: there is no missing.pem{hint}",
        f"config.xml:12: warning: Transport/CAFile: {unchecked}",
        f"config.xml:15: warning: Transport/FileName: there is no directory run{hint}",
        f"config.xml:22: warning: Target/FileName: {obstacle}{hint}",
        f"config.xml:30: warning: Transport/CAFile: there is no absent.pem{hint}",
        "config.xml is valid: 0 errors, 7 warnings",
    ]
    assert run.returncode == 0


def test_a_warning_is_said_once_on_a_terminal(tmp_path: Path) -> None:
    """By the log where that leads to standard error, by the command where it does not."""
    path = configuration(tmp_path)
    path.write_text(path.read_text().replace("test-instance", "test instance"))
    for target in ("stdout", "stderr", "none"):
        log = f"<Target><Protocol>{target}</Protocol><Level>info</Level></Target>"
        log = "" if target == "none" else f"<Logging>{log}</Logging>"
        text = re.sub(r"(?s)<Logging>.*?</Logging>", "", path.read_text())
        path.write_text(text.replace("</AMPSConfig>", f"{log}</AMPSConfig>"))
        process = ForkedProcess(tmp_path, path, tmp_path / "terminal", None)
        try:
            _connect(path)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(WAIT_SECONDS)
        assert (tmp_path / "terminal").read_text().count("becomes part of file names") == 1


def _connect(path: Path) -> None:
    port = int(re.search(r"127\.0\.0\.1:(\d+)", path.read_text()).group(1))  # type: ignore[union-attr]  # it is there
    wait_until(lambda: _listens(port), "nobody listens")


def _listens(port: int) -> bool:
    try:
        with RawPeer(port):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stop_signals_end_the_server_cleanly(tmp_path: Path, how: signal.Signals) -> None:
    """Code 0, with clients connected and disconnected."""
    with running_server(tmp_path) as server, server.log_on() as peer:
        assert server.stop(how) == 0
        assert peer.is_disconnected()
        assert server.logs(f"shutdown requested by signal {how.name}")
        assert server.logs("shutdown completed")
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


def test_a_daemon_tells_how_its_start_went_and_lets_go_of_its_starter(tmp_path: Path) -> None:
    """The command and its streams end when clients can connect, and with code 1 when never."""
    path = configuration(tmp_path)
    port = int(re.search(r"127\.0\.0\.1:(\d+)", path.read_text()).group(1))  # type: ignore[union-attr]  # it is there
    # This waits for the end of both streams, whoever has them open.
    started = amp_server("--daemon", path)
    assert started.returncode == 0
    pid = int(started.stdout.rpartition("running in the background as process ")[2])
    try:
        warning = "Target/Protocol: stdout of a server in the background is not visible"
        assert f"{path}:15: warning: {warning}" in started.stderr
        with RawPeer(port) as peer:
            assert peer.log_on()["status"] == "success"
            streams = {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)}
            assert streams == {os.devnull}
            second = amp_server("--daemon", path)
            assert (second.returncode, "Address already in use" in second.stderr) == (1, True)
            os.kill(pid, signal.SIGTERM)
            assert peer.is_disconnected()
    finally:
        _end(pid)


def _end(pid: int) -> None:
    """Wait for the end of a process that is nobody's child, or end it."""
    if not comes_true(lambda: not _lives(pid)):
        os.kill(pid, signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_start_by_mistake_leaves_the_log_of_the_server_that_runs(tmp_path: Path) -> None:
    """Nor does a start after a crash take away what tells why."""
    path = configuration(
        tmp_path,
        "<Logging><Target><Protocol>file</Protocol><FileName>x.log</FileName>"
        "<Level>info</Level><RotationThreshold>1M</RotationThreshold></Target></Logging>",
    )
    path.write_text(re.sub(r"(?s)<Logging>.*?</Logging>", "", path.read_text(), count=1))
    process = ForkedProcess(tmp_path, Path("config.xml"), tmp_path / "stdout.log", None)
    try:
        _connect(path)
        assert amp_server("config.xml", cwd=tmp_path).returncode == 1
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)
    log = (tmp_path / "x.log").read_text()
    assert log.count("is starting: version") == 2
    assert log.index("initialization completed") < log.index("Address already in use")
    assert log.count(f"Working directory: {tmp_path}\n") == 2


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_configuration_runs_as_it_is(tmp_path: Path, sample: Path) -> None:
    """Verified without a warning, then started, on other ports than those of its text."""
    text = sample.read_text().replace("${REGION}", "test").replace("${PORT}", "9007")
    for part in sample.parent.glob("parts/*.toml"):
        copy = tmp_path / "sample_configs" / "parts" / part.name
        copy.parent.mkdir(parents=True)
        shutil.copy(part, copy)
        copy.chmod(0o600)  # which it is not in a checkout, and that is warned of
    text = text.replace("<Include>parts/", f"<Include>{sample.parent}/parts/")
    for port in set(re.findall(r"\b(?:90[0-9]7|8085)\b", text)):
        text = re.sub(rf"(<InetAddr>.*?){port}", rf"\g<1>{free_port()}", text)
    with running_configuration(tmp_path, text, 0) as server:
        assert " warning: " not in server.log()
        assert server.stop() == 0


def test_all_samples_are_listed_with_commands_that_can_be_copied() -> None:
    """Options are written out in full where a comment of XML cannot hold them: in the README."""
    page = (SAMPLES[0].parent / "README.md").read_text()
    for sample in SAMPLES:
        assert not re.search(r"two dashes|two hyphens", sample.read_text())
        assert f"[{sample.name}]({sample.name})" in page


def test_at_least_five_sample_configurations() -> None:
    """The folder is not empty by accident."""
    assert len(SAMPLES) >= 5


def replicating(name: str, peer: str, topics: str = "orders") -> str:
    """One of a pair, with ports that nobody opens."""
    ports = {"east": 9101, "west": 9102}
    recorded = "".join(
        f"<Topic><Name>{topic}</Name><MessageType>json</MessageType></Topic>\n"
        for topic in topics.split()
    )
    return f"""<AMPSConfig>
<Name>{name}</Name>
<Transports><Transport>
<Name>in</Name><Type>amps-replication</Type><InetAddr>{name}:{ports[name]}</InetAddr>
</Transport></Transports>
<TransactionLog><JournalDirectory>journal</JournalDirectory>{recorded}</TransactionLog>
<Replication><Destination>
<Name>{peer}</Name><PassThrough>.*</PassThrough>{recorded}
<Transport><InetAddr>{peer}:{ports[peer]}</InetAddr></Transport>
</Destination></Replication>
</AMPSConfig>
"""


def test_configurations_that_are_given_together_are_verified_together(tmp_path: Path) -> None:
    """After each has been verified by itself; that they do not fit is exit code 1."""
    (tmp_path / "east.xml").write_text(replicating("east", "west"))
    (tmp_path / "west.xml").write_text(replicating("west", "east"))
    run = amp_server("--verify-config", "east.xml", "west.xml", "east.xml", cwd=tmp_path)
    assert run.returncode == 0
    *_, verdict = run.stderr.splitlines()
    assert verdict == "east.xml, west.xml fit together: 0 errors, 0 warnings"

    (tmp_path / "east.xml").write_text(replicating("east", "west", "orders trades"))
    run = amp_server("--verify-config", "east.xml", "west.xml", cwd=tmp_path)
    assert run.returncode == 1
    *_, txlog, replicate, verdict = run.stderr.splitlines()
    assert txlog.startswith("east.xml:11: error: Destination/Topic: txlog: 'trades' of type 'json'")
    assert "(west.xml:6)" in txlog
    assert replicate.startswith("east.xml:11: error: Destination/Topic: replicate: 'trades'")
    assert verdict == "east.xml, west.xml do not fit together: 2 errors, 0 warnings"
    assert sorted(os.listdir(tmp_path)) == ["east.xml", "west.xml"]


def test_what_is_found_is_there_for_programs(tmp_path: Path) -> None:
    """An object for each configuration, and one for those that replicate; people read on."""
    (tmp_path / "east.xml").write_text(replicating("east", "west", "orders trades"))
    (tmp_path / "west.xml").write_text(replicating("west", "east"))
    run = amp_server("--verify-config", "--json", "east.xml", "west.xml", cwd=tmp_path)
    assert run.returncode == 1
    east, west, together = map(json.loads, run.stdout.splitlines())
    assert west == {
        "configuration": "west.xml",
        "can_be_used": True,
        "errors": 0,
        "warnings": 0,
        "problems": [],
    }
    assert east["can_be_used"]
    assert (together["configurations"], together["fit_together"]) == (
        ["east.xml", "west.xml"],
        False,
    )
    assert together["errors"] == len(together["problems"]) == 2
    problem = together["problems"][0]
    assert (problem["file"], problem["line"]) == ("east.xml", 11)
    assert (problem["severity"], problem["element"]) == ("error", "Destination/Topic")
    assert problem["message"].startswith("txlog: 'trades'")
    assert "do not fit together: 2 errors" in run.stderr

    (tmp_path / "broken.xml").write_text(BROKEN)
    run = amp_server("--verify-config", "--json", "broken.xml", cwd=tmp_path)
    broken = json.loads(run.stdout)
    assert (run.returncode, broken["can_be_used"]) == (1, False)
    assert broken["errors"] == len(broken["problems"]) > 0


def test_what_does_not_replicate_is_verified_by_itself(tmp_path: Path) -> None:
    """As is one configuration alone, and what stands beside one that cannot be used."""
    (tmp_path / "east.xml").write_text(replicating("east", "west"))
    (tmp_path / "broken.xml").write_text(BROKEN)
    config = configuration(tmp_path).name
    for arguments in (["east.xml"], ["east.xml", "./east.xml"], [config, config], [config]):
        run = amp_server("--verify-config", *arguments, cwd=tmp_path)
        assert run.returncode == 0
        assert "together" not in run.stderr
    run = amp_server("--verify-config", "east.xml", "broken.xml", cwd=tmp_path)
    assert run.returncode == 1
    *_, last = run.stderr.splitlines()
    assert last == "not verified against each other, for want of broken.xml"
