"""`amps-doctor` where something is wrong: each trouble is a line of the report, and no end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import trustme

from server.admin.diagnosis.directories import InstanceDirectory
from server.admin.diagnosis.findings import CheckVerdict
from server.cli import amps_doctor
from server.cli.doctor import clock, disks, machine
from server.cli.doctor.admin_interface import is_one_machine
from server.cli.doctor.findings import Examination
from tests.cli.support import contents
from tests.storage.journal.support import opened
from tests.support.server import free_port

SECRET = "hunter-two"
NOBODY = 65_534

CONFIGURATION = """
<AMPSConfig>
  <Name>TEST</Name>
  <Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin>
  <MiniDumpDirectory>./dumps</MiniDumpDirectory>
  <TransactionLog>
    <JournalDirectory>./journal</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <Logging>
    <Target><Protocol>file</Protocol><FileName>./x-%Y-%n.log</FileName><Level>info</Level></Target>
  </Logging>
</AMPSConfig>
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of an instance that does not run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "config.xml"
    path.write_text(CONFIGURATION.format(port=free_port()))
    return path


Checks = dict[str, dict[str, Any]]

STATUS = {"OK": 0, "look at this": 1, "wrong": 3}


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str]) -> Callable[..., Checks]:
    """Runs the command, and gives the checks that it made by area and name."""

    def run(*words: str | Path) -> Checks:
        status = amps_doctor.main([*map(str, words), "--no-archive", "--json"])
        printed = capsys.readouterr()
        assert printed.err == ""
        checks = json.loads(printed.out)["checks"]
        assert status == max(STATUS[one["verdict"]] for one in checks)
        for one in checks:
            assert (one["verdict"] == "OK") == (not one["reason"]) == (not one["advice"])
        return {f"{one['area']}: {one['name']}": one for one in checks}

    return run


def test_an_instance_that_does_not_run(config: Path, examine: Callable[..., Checks]) -> None:
    checks = examine("--config", config)
    (admin,) = (one for name, one in checks.items() if name.startswith("admin interface: http:"))
    assert (admin["verdict"], admin["value"]) == ("wrong", "nothing listens there")
    assert checks["process: runs"]["verdict"] == "look at this"
    assert checks["configuration: verification"]["verdict"] == "OK"
    assert checks["log: ./x-%Y-%n.log"]["value"] == "no file"


BROKEN = {
    f"<AMPSConfig><Name>x</Name><Password>{SECRET}": "is never closed",
    f"<AMPSConfig><Name>x</Name><Pasword>{SECRET}</Pasword></AMPSConfig>": "unknown element",
    f"<AMPSConfig><Pasword><Deep>{SECRET}</Deep></Pasword></AMPSConfig>": "unknown element",
    "<AMPSConfig><Name>${NO_SUCH_VARIABLE_AT_ALL}</Name></AMPSConfig>": "NO_SUCH_VARIABLE_AT_ALL",
    "<AMPSConfig><Include>nowhere.xml</Include></AMPSConfig>": "nowhere.xml",
    "<Other/>": "the outermost element of a configuration is AMPSConfig",
    "": "",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_configuration_that_is_broken(
    config: Path, examine: Callable[..., Checks], tmp_path: Path, text: str
) -> None:
    config.write_text(text)
    verification = examine("--config", config)["configuration: verification"]
    assert verification["verdict"] == "wrong"
    assert BROKEN[text] in verification["reason"]
    archive = tmp_path / "it.tar.gz"
    assert amps_doctor.main(["--config", str(config), "--output", str(archive)]) == 3
    assert all(SECRET not in text for text in contents(archive).values())


def test_what_can_be_understood_of_a_broken_configuration_is_looked_at(
    config: Path, examine: Callable[..., Checks]
) -> None:
    """A transport is wrong, and an action; the log, the journals and the address are not."""
    wrong = """
      <Transports><Transport>
        <Name>any</Name><Type>tcp</Type><InetAddr>nonsense</InetAddr><Protocol>amps</Protocol>
      </Transport></Transports>
      <Authentication><Module>none</Module></Authentication>
      <Actions><Action>
        <On><Module>amps-action-on-nonsense</Module></On>
        <Do><Module>amps-action-do-nothing</Module></Do>
      </Action></Actions>
      </AMPSConfig>"""
    config.write_text(config.read_text().replace("</AMPSConfig>", wrong))
    write_journals(config.parent / "journal", 1)
    checks = examine("--config", config)
    assert checks["configuration: verification"]["verdict"] == "wrong"
    assert "2 in use" in checks["files: headers of journals"]["value"]
    assert any(name.startswith("log: ") for name in checks)
    assert any(name.startswith("admin interface: http:") for name in checks)


def test_a_configuration_that_is_not_there(tmp_path: Path, examine: Callable[..., Checks]) -> None:
    for path, why in ((tmp_path / "none.xml", "there is no such file"), (tmp_path, "directory")):
        assert why in examine("--config", path)["configuration: verification"]["reason"]


@contextmanager
def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Something that listens, and always answers the same before it closes; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    peer = connection if tls is None else tls.wrap_socket(connection, True)
                    peer.recv(65_536)
                    peer.sendall(answer)
                    peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


ANSWERS = {
    b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n": ("look at this", "it asks for credentials"),
    b"HTTP/1.1 403 No\r\nContent-Length: 4\r\n\r\nnope": ("look at this", "403 nope"),
    b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n": ("wrong", "500"),
    b"HTTP/1.1 200 Yes\r\nContent-Length: 2\r\n\r\n{}": ("wrong", "not as an instance does"),
    b"HTTP/1.1 200 Yes\r\nContent-Length: 99\r\n\r\n{}": ("wrong", "not as an instance does"),
    b"SSH-2.0-OpenSSH\r\n": ("wrong", "does not speak HTTP"),
    b"": ("wrong", ""),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_something_else_answers(examine: Callable[..., Checks], answer: bytes) -> None:
    verdict, value = ANSWERS[answer]
    with answering(answer) as port:
        url = f"http://127.0.0.1:{port}"
        found = examine("--url", url)
    assert found[f"admin interface: {url}"]["verdict"] == verdict
    assert value in found[f"admin interface: {url}"]["value"]


@pytest.mark.parametrize(
    ("own", "peer", "is_one"),
    [
        ("127.0.0.1", "127.0.0.2", True),
        ("::1", "::1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
    ],
)
def test_whose_machine_an_instance_is_on(own: str, peer: str, is_one: bool) -> None:
    assert is_one_machine(own, peer) == is_one


def test_nothing_is_said_to_who_cannot_prove_who_it_is(
    examine: Callable[..., Checks], tmp_path: Path
) -> None:
    authority, authorities = trustme.CA(), tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(authorities)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    (answer, *_) = ANSWERS
    with answering(answer, tls) as port:
        url = f"https://127.0.0.1:{port}"
        stranger = examine("--url", url)[f"admin interface: {url}"]
        known = examine("--url", url, "--ca-file", authorities)[f"admin interface: {url}"]
        plain = examine("--url", f"http://127.0.0.1:{port}")
        none = examine("--url", url, "--ca-file", tmp_path / "none")[f"admin interface: {url}"]
    assert stranger["value"].startswith("its certificate is not trusted: ")
    assert "--ca-file" in stranger["advice"]
    assert "it asks for credentials" in known["value"]
    assert plain[f"admin interface: http://127.0.0.1:{port}"]["verdict"] == "wrong"
    assert f"{tmp_path}/none: " in none["value"]


def test_credentials_in_an_address_are_not_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with answering(b"") as port:
        url = f"http://ann:{SECRET}@127.0.0.1:{port}"
        assert amps_doctor.main(["--url", url, "--no-archive"]) == 3
    assert SECRET not in capsys.readouterr().out


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://x:y", "http://[::1"])
def test_an_address_that_is_none(examine: Callable[..., Checks], url: str) -> None:
    assert examine("--url", url)["admin interface: address"]["verdict"] == "wrong"


def write_journals(directory: Path, files: int) -> list[Path]:
    """The journals of an instance that has filled some."""
    with opened(directory) as bench:
        topic = bench.journal.topic_handle("json", "orders")
        sequence = 0
        while len([*directory.glob("*.journal")]) < files + 1:
            sequence += 1
            bench.journal.append(topic, 1, sequence, bytes(50_000))
            bench.journal.commit()
    return sorted(directory.glob("TEST.*.journal"))


def remove_the_middle(files: list[Path]) -> None:
    files[1].unlink()


def overwrite_a_header(files: list[Path]) -> None:
    with files[0].open("r+b") as file:
        file.seek(16)
        file.write(b"\xff" * 64)


def cut_short(files: list[Path]) -> None:
    with files[0].open("r+b") as file:
        file.truncate(100)


def take_from_another(files: list[Path]) -> None:
    files[0].write_bytes(b"journal of somebody else" * 1000)


DAMAGES: dict[Callable[[list[Path]], None], tuple[str, str]] = {
    remove_the_middle: ("files: sequence of journals", "missing between 0 to 2"),
    overwrite_a_header: ("files: headers of journals", "1 that cannot be read as such"),
    cut_short: ("files: headers of journals", "1 that cannot be read as such"),
    take_from_another: ("files: files of others", "TEST.0000000000.journal"),
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_journals_that_are_not_as_they_should_be(
    config: Path,
    examine: Callable[..., Checks],
    damage: Callable[[list[Path]], None],
) -> None:
    files = write_journals(config.parent / "journal", 3)
    checks = examine("--config", config)
    for name in ("files: headers of journals", "files: files of others"):
        assert checks[name]["verdict"] == "OK"
    assert "files: sequence of journals" not in checks
    damage(files)
    before = {path: path.stat().st_mtime_ns for path in (config.parent / "journal").iterdir()}
    name, value = DAMAGES[damage]
    found = examine("--config", config)[name]
    assert found["verdict"] == "wrong"
    assert value in found["value"]
    after = {path: path.stat().st_mtime_ns for path in (config.parent / "journal").iterdir()}
    assert after == before


def test_a_name_that_is_no_text(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file may be called anything; both forms of the report have it escaped."""
    (config.parent / "journal").mkdir()
    (config.parent / os.fsdecode(b"journal/caf\xe9.foreign-1")).touch()
    for options in ([], ["--json"]):
        amps_doctor.main(["--config", str(config), "--no-archive", *options])
        printed = capfd.readouterr()
        assert printed.err == ""
        assert "caf\\udce9.foreign-1" in printed.out


@pytest.mark.parametrize(
    ("days", "verdict"), [(300, "OK"), (20, "look at this"), (-1, "wrong"), (None, "wrong")]
)
def test_certificates_that_end(
    config: Path, examine: Callable[..., Checks], days: int | None, verdict: str
) -> None:
    transport = """
      <Transports><Transport>
        <Name>any</Name><Type>tcps</Type><InetAddr>0</InetAddr><Protocol>amps</Protocol>
        <Certificate>./own.pem</Certificate><PrivateKey>./own.pem</PrivateKey>
      </Transport></Transports></AMPSConfig>"""
    config.write_text(config.read_text().replace("</AMPSConfig>", transport))
    if days is None:
        (config.parent / "own.pem").write_text("no certificate")
    else:
        now = datetime.now(UTC)
        begin, end = now - timedelta(days=9), now + timedelta(days=days)
        issued = trustme.CA().issue_cert("localhost", not_before=begin, not_after=end)
        issued.private_key_and_cert_chain_pem.write_to_path(config.parent / "own.pem")
    found = examine("--config", config)["certificates: ./own.pem of transport any"]
    assert found["verdict"] == verdict


def test_files_that_were_set_aside(config: Path, examine: Callable[..., Checks]) -> None:
    (config.parent / "journal").mkdir()
    (config.parent / "journal/TEST.0000000000.journal.foreign-1").write_text("theirs")
    checks = examine("--config", config)
    assert "foreign-1" in checks["files: files that were set aside"]["value"]


def test_who_uses_the_files_is_found_without_the_admin_interface(
    config: Path, examine: Callable[..., Checks]
) -> None:
    with opened(config.parent / "journal"):
        checks = examine("--config", config, "--minidump")
    assert checks["process: runs"]["value"] == f"process {os.getpid()}"
    assert f"kill -QUIT {os.getpid()}" in checks["minidumps: a minidump"]["advice"]


LOG = """\
2026-11-23T14:14:48.7589940+00:00 [1] info: 00-0001 Amperage 0.0.7: runs configurations
2026-11-23T14:14:48.0+00:00 [1] info: 00-0030 Command line: ampServer -DA='a secret' -DB=hidden
2026-11-23T14:14:49.7589940+00:00 [1] trace: 12-0001 client[a] publish command received: {}
second line of a message
2026-11-23T14:14:50.7589940+00:00 [1] {level}: 1D-0005 The transaction log cannot be written to
2026-11-23T14:14:50.7589940+00:00 [1] {level}: 1D-0005 The transaction log cannot be written to
"""


@pytest.mark.parametrize(
    ("level", "verdict"), [("info", "OK"), ("warning", "look at this"), ("critical", "wrong")]
)
def test_what_a_log_complains_about(
    config: Path, examine: Callable[..., Checks], level: str, verdict: str
) -> None:
    log = config.parent / "x-2026-00000.log"
    log.write_text(LOG.replace("{level}", level))
    found = examine("--config", config)[f"log: {log.name}"]
    assert found["verdict"] == verdict
    if verdict != "OK":
        assert "2 x 1D-0005" in found["reason"]
    archive = config.parent / "it.tar.gz"
    amps_doctor.main(["--config", str(config), "--output", str(archive)])
    text = contents(archive)[f"log/{log.name}"]
    assert "Command line: ampServer -DA=******** -DB=********" in text
    for hidden in ("a secret", "hidden", "12-0001", "second line of a message"):
        assert hidden not in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_may_not_be_read(config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as name:  # others may go to the place of all the rest
        directory = Path(name)
        directory.chmod(0o755)
        shutil.copy(config, directory)
        (directory / "journal").mkdir(mode=0o700)
        (directory / "x-2026-00000.log").touch(mode=0o600)
        if not (child := os.fork()):
            os.chdir(directory)
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os._exit(amps_doctor.main(["--config", "config.xml", "--no-archive"]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == STATUS["wrong"]
    printed = capfd.readouterr()
    assert printed.err == ""
    assert f"may be read: not by this user ({NOBODY})" in printed.out
    assert "x-2026-00000.log: Permission denied" in printed.out


def test_an_archive_that_cannot_be_written(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = config.parent / "taken"
    taken.write_text("mine")
    for path, why in ((taken, "File exists"), (config.parent / "none/it", "No such file")):
        assert amps_doctor.main(["--config", str(config), "--output", str(path)]) == 3
        assert f"archive: {path}: {why}" in capsys.readouterr().out
    assert taken.read_text() == "mine"


def test_nothing_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        amps_doctor.main([])
    assert end.value.code == 2
    assert "give --config FILE, --url URL, or both" in capsys.readouterr().err


@pytest.mark.parametrize("password", [None, ""])
def test_a_file_without_a_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], password: str | None
) -> None:
    path = tmp_path / "password"
    if password is not None:
        path.write_text(password)
    words = ["--url", "localhost:1", "--user", "ann", "--password-file", str(path)]
    assert amps_doctor.main(words) == 4
    assert str(path) in capsys.readouterr().err


GOOD = {
    "proc/loadavg": "0.10 0.10 0.10 1/100 1",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 500 kB\nSwapTotal: 1000 kB\n",
    "proc/self/limits": "Limit  Soft Limit  Hard Limit\nMax open files   1024   524288   files\n",
    "proc/self/cgroup": "0::/amps\n",
    "proc/sys/vm/swappiness": "1",
    "proc/sys/vm/max_map_count": "262144",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
    "sys/fs/cgroup/amps/memory.max": "1000",
    "sys/fs/cgroup/amps/memory.current": "500",
    "sys/fs/cgroup/amps/memory.events": "oom 0\noom_kill 0",
    "sys/fs/cgroup/amps/cpu.max": "200000 100000",
    "sys/fs/cgroup/amps/cpu.stat": "nr_periods 10\nnr_throttled 0",
    "proc/self/mounts": "/dev/a / ext4 rw,relatime 0 0\n",
}
"""What the kernel shows of a machine that is well."""

MACHINES = [
    ("load", "proc/loadavg", "999.0 9.0 9.0 1/100 1", CheckVerdict.WARNING),
    ("memory", "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 90 kB\n", CheckVerdict.WARNING),
    ("memory", "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 20 kB\n", CheckVerdict.ERROR),
    (
        "open files",
        "proc/self/limits",
        "x\nMax open files   1024   1024   files",
        CheckVerdict.WARNING,
    ),
    ("open files", "proc/self/limits", "x\nMax open files   256   256   files", CheckVerdict.ERROR),
    ("swappiness", "proc/sys/vm/swappiness", "60", CheckVerdict.WARNING),
    ("memory maps", "proc/sys/vm/max_map_count", "1000", CheckVerdict.WARNING),
    (
        "transparent huge pages",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "[always] madvise never",
        CheckVerdict.WARNING,
    ),
    (
        "memory limit of the cgroup",
        "sys/fs/cgroup/amps/memory.current",
        "980",
        CheckVerdict.ERROR,
    ),
    (
        "processes ended for want of memory",
        "sys/fs/cgroup/amps/memory.events",
        "oom 1\noom_kill 1",
        CheckVerdict.ERROR,
    ),
    (
        "processor limit of the cgroup",
        "sys/fs/cgroup/amps/cpu.stat",
        "nr_throttled 17",
        CheckVerdict.WARNING,
    ),
]


def kernel(root: Path, **changes: str) -> Path:
    """What a kernel shows, but for some files, below a root."""
    for name, text in (GOOD | changes).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(("name", "file", "text", "verdict"), MACHINES)
def test_what_is_thought_of_a_machine(
    tmp_path: Path, name: str, file: str, text: str, verdict: CheckVerdict
) -> None:
    before, after = Examination(), Examination()
    machine.examine(machine.HostMachine(kernel(tmp_path)), before)
    bad = {one.name for one in before.findings if one.verdict is not CheckVerdict.OK}
    assert bad <= {"processors"}  # which are this machine's own
    machine.examine(machine.HostMachine(kernel(tmp_path, **{file: text})), after)
    (found,) = (one for one in after.findings if one.name == name)
    assert found.verdict is verdict
    assert found.reason
    assert found.advice


def test_a_kernel_that_shows_nothing(tmp_path: Path) -> None:
    found = Examination()
    machine.examine(machine.HostMachine(tmp_path), found)
    assert {one.name for one in found.findings} == {"processors"}


MOUNTS = [
    ("tmpfs / tmpfs rw 0 0", "type", CheckVerdict.WARNING),
    ("host:/x / nfs4 rw 0 0", "type", CheckVerdict.WARNING),
    ("overlay / overlay rw 0 0", "type", CheckVerdict.WARNING),
    ("/dev/a / ext4 ro,relatime 0 0", "mounted", CheckVerdict.ERROR),
]


@pytest.mark.parametrize(("line", "name", "verdict"), MOUNTS)
def test_what_is_thought_of_a_file_system(
    tmp_path: Path, line: str, name: str, verdict: CheckVerdict
) -> None:
    found = Examination()
    root = kernel(tmp_path, **{"proc/self/mounts": f"{line}\n"})
    disks.examine([InstanceDirectory("journals", tmp_path)], found, root)
    (one,) = (one for one in found.findings if one.name.endswith(f": {name}"))
    assert one.verdict is verdict


def test_a_disk_without_room_for_two_more_files_is_wrong(tmp_path: Path) -> None:
    found = Examination()
    disks.examine(
        [InstanceDirectory("journals", tmp_path, needed_bytes=1 << 60)], found, kernel(tmp_path)
    )
    assert found.findings[0].verdict is CheckVerdict.ERROR


def test_directories_on_one_disk_are_one_line(tmp_path: Path) -> None:
    found = Examination()
    places = [
        InstanceDirectory("journals", tmp_path / "a"),
        InstanceDirectory("records", tmp_path / "b"),
    ]
    disks.examine(places, found, kernel(tmp_path))
    (room,) = (one for one in found.findings if "free (" in one.value)
    assert room.name == f"journals: {tmp_path}/a; records: {tmp_path}/b"
    facts = found.facts["disks"]
    assert isinstance(facts, list)
    assert [one["for"] for one in facts] == ["journals", "records"]


@pytest.mark.parametrize(
    ("begun", "ended", "expected"),
    [(0.95, 0.96, 0), (-0.05, 0.01, 0), (0.5, 1.5, 0), (-3.0, -2.0, 2), (7.4, 7.5, -6)],
)
def test_clocks_agree_within_the_second_that_an_answer_names(
    begun: float, ended: float, expected: int
) -> None:
    found = Examination()
    moment = 1_764_000_000
    clock.examine(formatdate(moment, usegmt=True), (moment + begun, moment + ended), found)
    (one,) = (one for one in found.findings if one.name == "the server's clock")
    assert one.value.startswith(f"{expected:+d} s ")
    assert (one.verdict is CheckVerdict.OK) is (abs(expected) <= 5)
