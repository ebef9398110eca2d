"""`amps-service`: installed, renewed and removed in an image of a machine, and run from there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

from server.cli import amps_service
from server.cli.service.installer import working_directory
from server.cli.service.program_copy import MARK
from tests.support.long_form import ONLY_LONG
from tests.support.server import ROOT, environment, free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.process  # copies half a gigabyte, which takes as long as processes do

PROGRAM = Path("opt/amps")
UNITS = [Path("usr/lib/systemd/system") / name for name in ("amps.service", "amps@.service")]
INIT_SCRIPT = Path("etc/init.d/amps")
NOBODY = 65_534
MAX_EXPOSED = 30
"""Tenths, in the marks that systemd gives."""


def share_bytecode(program: Path, prefix: Path) -> None:
    """Give a copy of the program the bytecode of what it is copied from.

    The sources of a copy are as old as those that they were copied from. Otherwise everything that
    the commands import would be compiled for each copy, which takes longer than all else.

    Args:
        program: where the copy is, or will be.
        prefix: where the bytecode is put, the value of PYTHONPYCACHEPREFIX for the commands.
    """
    for name in ("server.app.launch", "server.cli.spark"):
        import_module(name)
    library = Path(sysconfig.get_path("purelib"))
    packages = program / library.relative_to(sys.prefix)
    for module in [*sys.modules.values()]:
        source, bytecode = getattr(module, "__file__", None), getattr(module, "__cached__", None)
        if source is None or bytecode is None or not Path(bytecode).exists():
            continue
        path = Path(source)
        for origin in (library, ROOT):
            if path.is_relative_to(origin):
                path = packages / path.relative_to(origin)
                break
        shared = prefix.joinpath(*path.parent.parts[1:], Path(bytecode).name)
        shared.parent.mkdir(parents=True, exist_ok=True)
        if not shared.is_symlink():  # a module may have two names
            shared.symlink_to(bytecode)


def service(what: str, root: Path, *options: str) -> int:
    return amps_service.main([what, "--root", str(root), *options])


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An image of a machine with systemd, on which the service has been installed."""
    root = tmp_path_factory.mktemp("image")
    (root / "usr/lib/systemd").mkdir(parents=True)
    assert service("install", root) == 0
    yield root
    shutil.rmtree(root)


def test_what_is_installed(image: Path) -> None:
    assert (image / "opt/etc/amps").is_dir()
    assert (image / "var/lib/amps").is_dir()
    for unit in UNITS:
        text = (image / unit).read_text()
        assert "ExecStart=/opt/amps/bin/ampServer --reload-on-sighup /opt/etc/amps/" in text
        assert "User=amps" in text
        assert "@PREFIX@" not in text
    assert not (image / INIT_SCRIPT).exists()
    assert not (image / PROGRAM / "lib/python3.11/site-packages/pyspark").exists()
    pages = {path.name for path in (ROOT / "man").iterdir()}
    manual = image / PROGRAM / "share/man"
    assert {path.name for path in manual.glob("man?/*")} == pages
    assert (manual / "man5/amps-config.5").exists()
    link = image / "usr/share/man/man1/ampServer.1"
    assert link.readlink() == Path("/opt/amps/share/man/man1/ampServer.1")


def reload_status(unit: Path, command_line: str) -> int:
    """The status of a process after a reload by a unit; 0 if it goes on."""
    (line,) = re.findall("ExecReload=(.*)", unit.read_text())
    # below nohup the signal would be ignored
    command = ["env", "--default-signal=HUP", "bash", "-c", 'exec -a "$0" sleep 1000', command_line]
    with subprocess.Popen(command) as process:
        try:
            shown = Path(f"/proc/{process.pid}/cmdline")
            wait_until(lambda: shown.read_text().startswith(command_line))
            variables = environment(MAINPID=str(process.pid))
            done = subprocess.run(shlex.split(line), env=variables, check=False)
            return process.wait(WAIT_SECONDS) if done.returncode == 0 else process.poll() or 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("command_line", "status"),
    [
        ("/opt/amps/bin/ampServer --reload-on-sighup config.xml", -signal.SIGHUP),
        ("/opt/amps/bin/ampServer config.xml", 0),
        ("the ProcessName of a configuration", -signal.SIGHUP),
    ],
)
def test_a_reload_stops_no_server_of_an_earlier_unit(
    image: Path, command_line: str, status: int
) -> None:
    for unit in UNITS:
        assert reload_status(image / unit, command_line) == status


@pytest.mark.parametrize(
    ("configuration", "directory"),
    [
        ("/opt/etc/amps/config.xml", "/var/lib/amps"),
        ("/opt/etc/amps/orders.xml", "/var/lib/amps/orders"),
        ("/opt/etc/amps/orders.xml.old", None),
        ("/etc/config.xml", None),
    ],
)
def test_where_paths_begin_is_what_the_units_say(
    image: Path, configuration: str, directory: str | None
) -> None:
    found = working_directory(Path(configuration))
    assert found == (directory and Path(directory))
    if directory is not None:
        unit = UNITS[Path(configuration).stem != "config"]
        text = (image / unit).read_text().replace("%i", Path(configuration).stem)
        assert f"WorkingDirectory={directory}\n" in text


def test_the_copy_runs_by_itself(image: Path, tmp_path: Path) -> None:
    """Nothing of where it was copied from is in it, but for the interpreter."""
    for command in (image / PROGRAM / "bin").iterdir():
        if command.suffix == ".sh":
            assert command.read_bytes() == (ROOT / "scripts" / command.name).read_bytes()
            assert os.access(command, os.X_OK)
        elif not command.is_symlink():
            assert command.read_text().startswith("#!/opt/amps/bin/python\n")
    python = image / PROGRAM / "bin/python"
    scripts = {path.name for path in (image / PROGRAM / "bin").glob("*.sh")}
    assert scripts == {"install-amps-daemon.sh", "uninstall-amps-daemon.sh"}
    share_bytecode(image / PROGRAM, tmp_path / "bytecode")
    shared = {"PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    answer = run(
        python,
        "-c",
        "import server.cli.amp_server; print(server.cli.amp_server.__file__)",
        cwd=tmp_path,
        environment=shared,
    )
    assert answer.startswith(str(image))
    config = tmp_path / "config.xml"
    server_command = (python, image / PROGRAM / "bin/ampServer")
    config.write_text(run(*server_command, "--sample-config", environment=shared))
    assert "is valid" in run(*server_command, "--verify-config", config, environment=shared)


def run(
    *words: str | Path, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ran = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=kept | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_installing_again_renews_the_program_and_leaves_the_rest(image: Path) -> None:
    config, data = image / "opt/etc/amps/config.xml", image / "var/lib/amps/journal"
    for path in (config, data):
        path.write_text("precious")
    stale = image / PROGRAM / "stale"
    stale.write_text("")
    for what in ("new", "old"):  # of a copy that was interrupted
        left = image / f"{PROGRAM}.{what}"
        left.mkdir()
        (left / MARK).write_text("")
    (image / UNITS[0]).write_text("")
    assert service("install", image, "--user", "somebody") == 0
    assert not stale.exists()
    assert {path.name for path in (image / "opt").iterdir()} == {"amps", "etc"}
    assert "User=somebody" in (image / UNITS[0]).read_text()
    assert config.read_text() == data.read_text() == "precious"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: str(unit.name))
def test_a_unit_gives_away_little(image: Path, unit: Path) -> None:
    path = str(image / unit)
    marks = run("systemd-analyze", "security", "--no-pager", "--offline=true", path).split()
    exposure = marks[marks.index("exposure") :]
    assert float(exposure[exposure.index("level") + 3]) * 10 < MAX_EXPOSED


def test_what_is_said_as_json_and_what_is_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here where there is no systemd, and of an interpreter that others cannot run.

    Nothing is there to be removed the second time.
    """
    closed, root = tmp_path / "closed", tmp_path / "image"
    closed.mkdir(mode=0o700)
    (closed / "python").write_text("")
    copy = root / PROGRAM
    copy.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", str(closed / "python"))
        assert service("install", root, "--json") == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [list(one) for one in said] == [["done"], ["warning"], ["done"], ["to_do"]]
    assert said[1]["warning"].startswith("the interpreter ")
    assert said[3]["to_do"].startswith("/opt/etc/amps/config.xml is missing: put ")
    assert os.access(root / INIT_SCRIPT, os.X_OK)
    run("sh", "-n", root / INIT_SCRIPT)
    config = root / "opt/etc/amps/config.xml"
    config.write_text("precious")
    for _ in range(2):
        assert service("uninstall", root) == 0
        assert not copy.exists()
        assert not (root / INIT_SCRIPT).exists()
        assert not [*root.glob("usr/share/man/man?/*")]
        assert config.read_text() == "precious"
    assert "/opt/etc/amps: left\n" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["install", "uninstall"])
def test_an_image_that_is_not_there_is_not_made(
    what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "mistyped"
    assert service(what, root) == 1
    assert f"amps-service: {root} does not exist: expected the image" in capfd.readouterr().err
    assert not root.exists()


def test_what_an_interrupted_copy_has_left_is_removed(tmp_path: Path) -> None:
    """Whatever came after that is not there, and nobody misses it."""
    command = [
        sys.executable,
        "-m",
        "server.cli.amps_service",
        "install",
        "--root",
        str(tmp_path),
    ]
    install = subprocess.Popen(command, cwd=ROOT)
    begun = tmp_path / f"{PROGRAM}.new" / "lib"
    try:
        wait_until(begun.exists)
    finally:
        install.kill()
        install.wait()
    assert not (tmp_path / PROGRAM).exists()
    enabled = tmp_path / "etc/systemd/system/multi-user.target.wants/amps.service"
    enabled.parent.mkdir(parents=True)
    enabled.symlink_to("/nowhere/amps.service")
    assert service("uninstall", tmp_path) == 0
    assert list((tmp_path / "opt").iterdir()) == list(enabled.parent.iterdir()) == []


@pytest.mark.parametrize("name", [f"{PROGRAM}.new", f"{PROGRAM}.old"])
def test_what_is_in_the_way_of_a_copy_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    theirs = tmp_path / name / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("")
    assert service("install", tmp_path) == 1
    said = f"amps-service: {tmp_path / name} exists, and is not a copy of Amperage"
    assert capsys.readouterr().err.startswith(said)
    assert service("uninstall", tmp_path) == 0
    assert theirs.exists()


@pytest.mark.parametrize("what", ["install", "uninstall"])
def test_who_has_no_permission_is_told_in_one_line(
    capfd: pytest.CaptureFixture[str], what: str
) -> None:
    with tempfile.TemporaryDirectory() as directory:  # where anybody may look
        root = Path(directory)
        root.chmod(0o755)
        copy = root / PROGRAM
        copy.mkdir(parents=True)
        (copy / MARK).write_text("")
        for place in (copy, copy.parent):
            place.chmod(0o555)
        if not (child := os.fork()):
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            os._exit(service(what, root))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        for place in (copy.parent, copy):
            place.chmod(0o755)
    said = capfd.readouterr().err
    assert said.startswith(f"amps-service: {root}/opt/amps")
    assert said.endswith(": Permission denied\n")
    assert said.count("\n") == 1


CONFIGURATION = """<AMPSConfig>
  <Name>served</Name>
  <Transports><Transport>
    <Name>any</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
    <ReuseAddr>true</ReuseAddr><Protocol>amps</Protocol>
  </Transport></Transports>
  <SOW><Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic></SOW>
</AMPSConfig>"""

LIFE = """
set -e
for place in /etc /opt /var/lib /usr/share/man; do
    mkdir -p "$WORK/upper$place" "$WORK/work$place"
    mount -t overlay overlay \\
        -o "lowerdir=$place,upperdir=$WORK/upper$place,workdir=$WORK/work$place" "$place" || exit 99
done
mount -t tmpfs none /run
service="env -u PYTHONPYCACHEPREFIX $PYTHON -m server.cli.amps_service"
$service install --init sysv --user root
cp "$WORK/config.xml" /opt/etc/amps
/etc/init.d/amps start
echo '{"id":1}' | /opt/amps/bin/spark publish $AT
$service install --init sysv --user root
/etc/init.d/amps status
/etc/init.d/amps restart
/etc/init.d/amps reload
/etc/init.d/amps status
/opt/amps/bin/spark sow $AT
$service uninstall --init sysv
ls /opt /opt/etc/amps /var/lib/amps /etc/init.d
"""


@ONLY_LONG
def test_the_life_of_a_service(tmp_path: Path) -> None:
    """Installed, started, used, upgraded while it runs, and removed, on a machine of its own."""
    private = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0 or subprocess.run([*private, "true"], check=False).returncode:
        pytest.skip("only root has a machine of its own here")
    port = free_port()
    (tmp_path / "config.xml").write_text(CONFIGURATION.format(port=port))
    share_bytecode(Path("/") / PROGRAM, tmp_path / "bytecode")
    done = subprocess.run(
        [*private, "sh", "-c", LIFE],
        cwd=ROOT,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PYTHON": sys.executable,
            "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode"),
            "WORK": str(tmp_path),
            "AT": f"-server 127.0.0.1:{port} -type json -topic orders",
        },
        capture_output=True,
        text=True,
        timeout=4 * WAIT_SECONDS,
        check=False,
    )
    shutil.rmtree(tmp_path / "upper", ignore_errors=True)
    if done.returncode == 99:
        pytest.skip(f"this file system cannot be laid over another: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    told, _, left = done.stdout.partition("/var/lib/amps: left\n")
    assert "total messages published: 1" in told
    assert re.search(r"^amps is running as process \d+$", told, re.MULTILINE)
    assert "\namps has stopped\n" in told
    assert '{"id":1}' in told
    assert {"config.xml", "orders.sow"} <= {*left.split()}
    assert "amps" not in left.split()


def test_what_is_somebody_elses_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = tmp_path / PROGRAM / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("")
    assert service("install", tmp_path) == 1
    assert "exists, and is not a copy of Amperage: nothing was changed" in (capsys.readouterr().err)
    assert service("uninstall", tmp_path) == 0
    assert theirs.exists()


@pytest.mark.parametrize("what", ["install", "uninstall"])
def test_only_root_installs_on_the_machine_itself(
    capfd: pytest.CaptureFixture[str], what: str
) -> None:
    if not (child := os.fork()):
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        os._exit(amps_service.main([what]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert f"only root can {what} a service: run it with sudo" in capfd.readouterr().err


@pytest.mark.parametrize("what", ["install", "uninstall"])
def test_the_scripts_call_the_command(tmp_path: Path, what: str) -> None:
    script = Path(sys.executable).parent / f"{what}-amps-daemon.sh"
    answer = run(script, "--help", cwd=tmp_path)
    assert "amps-service" in answer
