"""`amps-doctor` at an instance that runs, with secrets and messages that are to be nowhere."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from config_schema.version import VERSION
from server.cli import amps_doctor, amps_report_minidump
from tests.cli.support import contents
from tests.support.server import RunningServer, free_port, running_configuration

SECRET = "hunter-two&more"
ESCAPED = SECRET.replace("&", "&amp;")
BODY = "the-body-of-a-message"
USER, PASSWORD = "ann-the-operator", "whatever-it-may-be"
NAME = "orders"

CONFIGURATION = f"""
<AMPSConfig>
  <Name>{NAME}</Name>
  <Description>knows {ESCAPED}</Description>
  <MiniDumpDirectory>./dumps</MiniDumpDirectory>
  <Admin>
    <InetAddr>127.0.0.1:{{admin}}</InetAddr><Interval>1s</Interval>
    <WWWAuthenticate>Basic realm="AMPS Admin"</WWWAuthenticate>
    <Authentication>
      <Module>amps-default-authentication-module</Module>
      <Options><RequireUsername>true</RequireUsername><AllowSpoofing>true</AllowSpoofing></Options>
    </Authentication>
  </Admin>
  <Transports><Transport>
    <Name>any-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:{{port}}</InetAddr>
    <Protocol>amps</Protocol>
  </Transport></Transports>
  <Logging>
    <Target><Protocol>stdout</Protocol><Level>info</Level></Target>
    <Target><Protocol>file</Protocol><FileName>./all-%n.log</FileName><Level>trace</Level></Target>
    <Target><Protocol>gzip</Protocol><FileName>./all-%n.gz</FileName><Level>trace</Level></Target>
  </Logging>
  <SOW><Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./sow/%n.sow</FileName>
  </Topic></SOW>
  <TransactionLog>
    <JournalDirectory>./journal</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <Actions><Action>
    <On><Module>amps-action-on-publish-message</Module>
      <Options><Topic>orders</Topic><MessageType>json</MessageType></Options></On>
    <Do><Module>amps-action-do-echo-message</Module>
      <Options><Message>here is {{{{{{{{AMPS_DATA}}}}}}}}</Message></Options></Do>
  </Action></Actions>
  <Replication><Destination>
    <Name>far</Name><SyncType>async</SyncType>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    <Transport>
      <Name>out</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:1</InetAddr>
      <Authenticator>
        <Module>amps-default-authenticator-module</Module>
        <Options><User>me</User><Password>{ESCAPED}</Password></Options>
      </Authenticator>
    </Transport>
  </Destination></Replication>
</AMPSConfig>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """An instance that logs everything to files, with messages good and bad."""
    directory, port = tmp_path_factory.mktemp("instance"), free_port()
    text = CONFIGURATION.format(admin=free_port(), port=port)
    with running_configuration(directory, text, port) as running:
        with running.log_on() as peer:
            for body in (f'{{"id": 1, "text": "{BODY}"}}', f'{{"id": {BODY}', f'"{BODY}"'):
                peer.publish("orders", body.encode())
            peer.flush()
        assert running.logs("here is {")
        yield running


@pytest.fixture
def config(server: RunningServer) -> Path:
    return server.log_file.parent / "config.xml"


@pytest.fixture(autouse=True)
def elsewhere(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command goes to the directory of the instance, and its callers are anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AMPS_ADMIN_USER", USER)
    password = tmp_path_factory.mktemp("secrets") / "password"
    password.write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("AMPS_ADMIN_PASSWORD_FILE", str(password))


def doctor(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = amps_doctor.main([*map(str, words)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_an_archive_has_all_that_a_colleague_needs_and_no_more(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages are in the log, in three forms, and the password in the description, too."""
    assert BODY in (config.parent / "all-00000.log").read_text()
    status, shown, complaints = doctor(capsys, "--config", config, "--minidump")
    (archive,) = tmp_path.glob(f"amps-doctor-{NAME}-*.tar.gz")
    assert complaints == ""
    assert shown.endswith(f"\nFor a colleague: {archive}\n")
    assert archive.stat().st_mode & 0o777 == 0o600
    files = contents(archive)
    (minidump,) = (name for name in files if name.startswith("minidump/"))
    assert "configuration that runs" not in shown
    assert {name for name in files if name != minidump} == {
        "configuration/config.xml",
        "configuration/verification.txt",
        "log/all-00000.log",
        "log/all-00000.gz.txt",
        "report.json",
        "report.txt",
        "statistics/amps.json",
    }
    for text in (shown, *files.values()):
        assert BODY not in text
        assert not re.search(r"hunter-two|whatever-it-may-be", text)
    assert shown.startswith(files["report.txt"])
    assert "<Password>********</Password>" in files["configuration/config.xml"]
    for log in ("log/all-00000.log", "log/all-00000.gz.txt"):
        assert "00-0015" in files[log]
        assert "entries below info, and messages, are left out" in files[log]
    (tmp_path / "dump").write_text(files[minidump])
    assert amps_report_minidump.main([str(tmp_path / "dump")]) == 0
    assert "where tasks wait" in capsys.readouterr().out
    report = json.loads(files["report.json"])
    assert report["instance"] == NAME
    assert status == {"OK": 0, "look at this": 1, "wrong": 3}[report["verdict"]]
    assert [one["number"] for one in report["checks"]] == [*range(1, len(report["checks"]) + 1)]
    facts = report["facts"]
    assert facts["versions"]["amperage"] == VERSION
    assert {"python", "libc", "system", "packages"} <= facts["versions"].keys()
    assert {"cgroup", "kernel", "limits", "memory", "open_files", "process"} <= (
        facts["machine"].keys()
    )
    assert {one["for"] for one in facts["disks"]} >= {"journals", "records", "minidumps"}
    kinds = {Path(one["path"]).name: one["kind"] for one in facts["files"]}
    assert kinds["orders.0000000000.journal"].startswith("AMPS journal ")
    tree = json.loads(files["statistics/amps.json"])["amps"]["instance"]
    assert (tree["name"], tree["description"]) == (NAME, "knows ********")


def test_a_report_names_each_check_and_what_it_thinks_of_it(
    config: Path, server: RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, shown, _ = doctor(capsys, "--config", config, "--no-archive", "--json")
    assert not [*tmp_path.iterdir()]
    checks = {f"{one['area']}: {one['name']}": one for one in json.loads(shown)["checks"]}
    for name, value in {
        "configuration: verification": "0 errors, 0 warnings",
        "process: runs": f"process {server.process.pid}",
        "health: engine": "ok",
        "health: transport any-tcp": "ok",
        "files: headers of journals": "1 in use",
        "files: files of others": "none",
        "machine: open files": " used",
        "clock: the server's clock": "against this machine's",
    }.items():
        assert value in checks[name]["value"]
        assert (checks[name]["verdict"], checks[name]["reason"]) == ("OK", "")
    far = checks["health: destination far"]
    assert far["verdict"] == "wrong"
    assert "never been connected" in far["value"]
    assert far["reason"]
    assert far["advice"]


def address(config: Path) -> str:
    """Of the admin interface."""
    (port,) = re.findall(r"<InetAddr>127.0.0.1:(\d+)</InetAddr><Interval>", config.read_text())
    return f"localhost:{port}"


def test_an_address_is_enough(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An instance on this machine says where its configuration is, and where paths begin."""
    _, shown, _ = doctor(capsys, "--url", address(config), "--no-archive")
    assert f"verification: {config}: 0 errors" in shown
    assert "headers of journals: 1 in use" in shown


@pytest.mark.parametrize("user", ["", USER])
def test_credentials_come_from_a_file(
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    user: str,
) -> None:
    """Without any, the instance shows nothing, and all the rest is looked at."""
    monkeypatch.delenv("AMPS_ADMIN_USER")
    monkeypatch.delenv("AMPS_ADMIN_PASSWORD_FILE")
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\n")
    words = [*map(str, ("--config", config, "--work-dir", config.parent, "--no-archive"))]
    _, shown, _ = doctor(capsys, *words, "--user", user, "--password-file", file)
    assert ("it asks for credentials" in shown) == (not user)
    assert ("instance orders, up" in shown) == bool(user)
    assert "process: runs: process " in shown
    assert "headers of journals: 1 in use" in shown


def test_an_instance_whose_configuration_has_gone(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows the configuration that it runs, and the end of its log, which is in memory."""
    archive, url = tmp_path / "it.tar.gz", address(config)
    gone = config.rename(tmp_path / "config.xml")
    try:
        status, shown, _ = doctor(capsys, "--url", url, "--output", archive)
    finally:
        gone.rename(config)
    assert status == 3
    assert f"{config}: error: cannot be read: there is no such file" in shown
    files = contents(archive)
    assert "<Password>********</Password>" in files["configuration/running.xml"]
    assert " 00-0015 " in files["log/recent.log"]
    for text in (shown, *files.values()):
        assert BODY not in text
        assert PASSWORD not in text


def test_delays_of_the_engine_have_a_cause(
    config: Path, server: RunningServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that is stopped for a moment is blocked."""

    def pause() -> None:
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(server.process.pid, signal.SIGCONT)

    timer = threading.Timer(1.0, pause)
    timer.start()
    words = ("--url", address(config), "--no-archive", "--json", "--latency", "3s")
    status, shown, _ = doctor(capsys, *words)
    timer.join()
    checks = {one["name"]: one for one in json.loads(shown)["checks"] if one["area"] == "latency"}
    assert status in {1, 3}
    assert re.fullmatch(
        r"half of [0-9,]+ below \S+ [mu]s, 99% below \S+ [mu]s, 99.9% below \S+ [mu]s,"
        r" the longest [0-9.]+ ms",
        checks["delays of the engine"]["value"],
    )
    assert re.fullmatch(
        r"[0-9,]+ times, \S+ ms in all, the longest [0-9.]+ ms", checks["blocked"]["value"]
    )
    assert checks["blocked"]["verdict"] == "look at this"


@pytest.mark.parametrize("time_text", ["0s", "61s", "soon"])
def test_a_time_for_which_nothing_can_be_measured(
    config: Path, capsys: pytest.CaptureFixture[str], time_text: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        amps_doctor.main(["--config", str(config), "--latency", time_text])
    assert ended.value.code == 2
    assert re.search(f"argument --latency: .?{time_text}", capsys.readouterr().err)


def test_a_configuration_that_has_been_edited_since_the_start(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, text = tmp_path / "it.tar.gz", config.read_text()
    config.write_text(text.replace("<Name>far</Name>", "<Name>farther</Name>"))
    try:
        _, shown, _ = doctor(capsys, "--config", config, "--output", archive)
    finally:
        config.write_text(text)
    assert "the configuration that runs: differs from the file" in shown
    files = contents(archive)
    assert "<Name>farther</Name>" in files["configuration/config.xml"]
    assert "<Name>far</Name>" in files["configuration/running.xml"]
