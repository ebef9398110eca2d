"""The image and the pair of compose.yaml: built where there is a builder, step by step anywhere.

Without a builder the parts are tried: what is copied is there, what is installed is complete, the
configurations fit together, and what runs in a container runs as process 1 on a file system that
can be written to in one place only.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.forked import ForkedProcess
from tests.support.packages import PACKAGES
from tests.support.raw import QUICK_ACKS
from tests.support.server import ROOT, RunningServer, amp_server, free_port, wait_until_started
from tests.support.sow import query
from tests.support.waiting import WAIT_SECONDS, wait_until

SAMPLES = ROOT / "sample_configs" / "container"
BUILDERS = ("podman", "docker", "buildah")
MAX_BUILD = 1200


class Instruction(NamedTuple):
    """A line of the Containerfile, continued ones as one."""

    name: str
    words: str

    @property
    def process(self) -> Any:
        """The words of an instruction that starts a process without a shell."""
        return json.loads(self.words[self.words.index("[") :])


def instructions() -> list[Instruction]:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    found = [line.partition(" ") for line in text.splitlines() if line]
    return [Instruction(name, words.strip()) for name, _, words in found]


def only(name: str) -> Instruction:
    """The one instruction of a name, or the last."""
    return [one for one in instructions() if one.name == name][-1]


def is_in_context(path: str) -> bool:
    """Whether a file is sent to a builder: no pattern fits it, or a directory that it is in."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    patterns += [pattern.replace("**/", "") for pattern in patterns]  # which may be nothing
    parents = [path, *map(str, Path(path).parents)][:-1]
    return not any(fnmatch.fnmatch(one, pattern) for one in parents for pattern in patterns)


def sources() -> set[str]:
    """The files of a checkout, without what is made from them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no checkout")
    return set(listed.stdout.splitlines())


def test_the_builder_gets_all_that_is_installed_and_nothing_that_is_made() -> None:
    """What setuptools wants: packages, and everything that pyproject.toml puts into share/."""
    files = sources()
    sent = {path for path in files if is_in_context(path)}
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    shared = {path for patterns in setuptools["data-files"].values() for path in patterns}
    folders = {f"{path.partition('/')[0]}/" for path in shared if "/" in path}
    assert {"docs/", "man/", "sample_configs/"} <= folders
    installed = (*folders, "scripts/", *(f"{name}/" for name in PACKAGES))
    assert {path for path in files if path.startswith(installed)} <= sent
    assert {"pyproject.toml", "setup.py", "README.md", "CHANGELOG.md", "LICENSE"} <= sent
    assert not [path for path in sent if path.startswith(("tests/", "benchmarks/", "."))]
    for made in (".git/HEAD", ".venv/bin/python", "server/x/y.c", "server/y.so", "data/x.journal"):
        assert not is_in_context(made), made
    assert not is_in_context("amperage/__pycache__/x.pyc")


def test_what_is_copied_is_there() -> None:
    for one in instructions():
        if one.name == "COPY" and not one.words.startswith("--from"):
            for source in one.words.split()[:-1]:
                path = ROOT / source
                assert path.exists(), source
                assert source == "." or is_in_context(str(path.relative_to(ROOT)))


def test_the_server_is_what_the_container_consists_of() -> None:
    """It gets signals itself, as nobody in particular, and all that it keeps is in the volume."""
    assert only("ENTRYPOINT").process == ["ampServer"]
    [config] = only("CMD").process
    assert (SAMPLES / Path(config).name).exists()
    assert any(one.words == "sample_configs/container/ /etc/amperage/" for one in instructions())
    assert only("STOPSIGNAL").words == "SIGTERM"
    user, group = only("USER").words.split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert only("WORKDIR").words == only("VOLUME").words == "/data"
    [check] = json.loads(only("HEALTHCHECK").words.partition("CMD ")[2])
    assert os.access(ROOT / "scripts" / check, os.X_OK)


def test_what_is_run_in_the_image_is_understood_by_a_shell() -> None:
    for one in instructions():
        if one.name == "RUN":
            subprocess.run(["sh", "-n", "-c", one.words], check=True, timeout=WAIT_SECONDS)


@pytest.fixture(scope="module")
def compose() -> Any:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def test_the_services_of_the_pair(compose: Any) -> None:
    """Each has a volume of its own, ports of its own, and a configuration that is mounted."""
    services = compose["services"]
    assert services.keys() == compose["volumes"].keys() == {"east", "west"}
    ports = [port for service in services.values() for port in service["ports"]]
    assert len({port.rpartition(":")[0] for port in ports}) == len(ports)
    assert all(port.startswith("127.0.0.1:") for port in ports), "they let everyone in"
    for name, service in services.items():
        assert (ROOT / service["build"]["dockerfile"]).exists()
        folder, data = service["volumes"]
        source, target, mode = folder.split(":")
        [config] = service["command"]
        assert (ROOT / source / Path(config).relative_to(target)).exists()
        assert (mode, data) == ("ro", f"{name}:/data")
        text = (SAMPLES / f"{name}.xml").read_text()
        assert f"<Name>{name}</Name>" in text
        assert service["hostname"] == name
        (other,) = services.keys() - {name}
        assert f"<InetAddr>{other}:9008</InetAddr>" in text
        for port in service["ports"]:
            assert f"<InetAddr>{port.rpartition(':')[2]}</InetAddr>" in text


def test_the_configurations_fit_together() -> None:
    run = amp_server("--verify-config", SAMPLES / "east.xml", SAMPLES / "west.xml")
    assert run.returncode == 0
    assert run.stderr.endswith("fit together: 0 errors, 0 warnings\n")
    assert run.stderr.count("listen on all addresses") == 2
    single = amp_server("--verify-config", SAMPLES / "single.xml")
    assert single.stderr.endswith("is valid: 0 errors, 1 warning\n")


class Place(NamedTuple):
    """Where a sample runs in a test.

    Attributes:
        directory: its working directory, with its configuration.
        port: where clients go.
        admin: where its health is asked for.
    """

    directory: Path
    port: int
    admin: int

    @property
    def configuration(self) -> Path:
        return self.directory / "config.xml"


def prepare(directory: Path, name: str, links: Mapping[str, int]) -> Place:
    """Write a sample anew, with ports of its own, and small journals.

    Args:
        directory: where to.
        name: of the sample.
        links: the ports of the instances that replicate.
    """
    directory.mkdir()
    place = Place(directory, free_port(), free_port())
    text = (SAMPLES / f"{name}.xml").read_text()
    text = text.replace("100MB", "10MB")
    text = text.replace(">9007<", f">127.0.0.1:{place.port}<").replace(">8085<", f">{place.admin}<")
    text = text.replace(">9008<", f">127.0.0.1:{links.get(name)}<")
    text = re.sub(r">(\w+):9008<", lambda found: f">127.0.0.1:{links[found[1]]}<", text)
    place.configuration.write_text(text)
    return place


def health(place: Place) -> tuple[int, str]:
    """What the image's health check says."""
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "container-health"],
        env=os.environ | {"AMPERAGE_READY": f"http://127.0.0.1:{place.admin}/readyz"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def is_ready(place: Place) -> bool:
    return health(place) == (0, "ok\n")


@contextmanager
def running(place: Place) -> Iterator[RunningServer]:
    process = ForkedProcess(place.directory, place.configuration, place.directory / "log", None)
    server = RunningServer(place.port, process, place.directory / "log")
    try:
        wait_until_started(server)
        yield server
    finally:
        process.kill()
        process.wait()


def test_the_pair_replicates_and_says_how_it_is(tmp_path: Path) -> None:
    """An instance without the other is not ready; what is published at one is at both."""
    links = {"east": free_port(), "west": free_port()}
    east, west = (prepare(tmp_path / name, name, links) for name in links)
    code, said = health(east)
    assert code == 1
    assert "Connection refused" in said
    with running(east) as one:
        code, said = health(east)
        assert code == 1
        assert said.startswith("destination west: it has never been connected")
        with running(west) as other:
            for place in (east, west):
                wait_until(partial(is_ready, place), one.log)
            with one.log_on("p", o=QUICK_ACKS) as peer:
                header = {"c": "publish", "t": "orders", "cid": "1", "a": "persisted"}
                assert peer.ask(header, b'{"id":1}')["status"] == "success"
            with other.log_on("q") as peer:
                assert query(peer, "orders").messages == [{"id": 1}]


APART = ("unshare", "-rmpf", "--mount-proc", "--kill-child")
"""A process tree and a file system of its own, as a container has them."""

ENTRY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro / && cd "$1" || exit 99
touch "$0" 2>/dev/null && exit 98
exec "$2" -m server.cli.amp_server "$1/config.xml"
"""


def test_as_process_1_it_stops_when_it_is_told_to(tmp_path: Path) -> None:
    """With nothing to write to but its volume."""
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives nobody a process tree of their own")
    place = prepare(tmp_path / "data", "single", {})
    script, log = tmp_path / "entry", place.directory / "log"
    script.write_text(ENTRY)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*APART, "sh", script, place.directory, sys.executable],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_started(RunningServer(place.port, process, log))
        assert "version 0" in log.read_text()
        assert "process 1," in log.read_text()
        assert is_ready(place)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
        assert "FF-0002" in log.read_text()
    finally:
        process.kill()
        process.wait()
    assert (place.directory / "sow" / "orders.json.sow").exists()


IMAGE = """
set -e
cd "$IMAGE"
mkdir -p etc root proc dev tmp
mount -t proc proc proc
mount --bind /dev dev
for place in /usr /bin /sbin /lib /lib64 $NEEDED; do
    if [ -L "$place" ]; then
        cp -P "$place" "./$place"
    elif [ -d "$place" ]; then
        mkdir -p "./$place"
        mount --bind "$place" "./$place"
    fi
done
cp -r /etc/passwd /etc/group /etc/login.defs /etc/nsswitch.conf etc
touch etc/shadow etc/gshadow
mkdir etc/amperage
cp "$CONFIG" "./$STARTED"
chroot . sh -ec "$RUN"
exec chroot . setpriv --reuid "${USER%:*}" --regid "${USER#*:}" --clear-groups \\
    sh -c 'cd "$WORKDIR" && exec "$PYTHON" -m server.cli.amp_server "$STARTED"'
"""
"""What a builder makes of the last stage, as far as that takes no image: the system is that of this
machine, and the server that of this checkout."""


def test_the_steps_of_the_image_make_a_system_in_which_the_server_runs(tmp_path: Path) -> None:
    """As the user that they add, with the volume for all that it keeps."""
    private = ["unshare", "-mpf", "--mount-proc", "--kill-child"]
    tools = ("groupadd", "useradd", "setpriv")
    if os.geteuid() != 0 or not all(map(shutil.which, tools)):
        pytest.skip("only root can make a system, with groupadd, useradd and setpriv")
    if subprocess.run([*private, "true"], capture_output=True, check=False).returncode:
        pytest.skip("root has no mounts of its own here")
    place, image = prepare(tmp_path / "data", "single", {}), tmp_path / "image"
    image.mkdir()
    image.chmod(0o755)
    [started] = only("CMD").process
    needed = {str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, ROOT)}
    with (tmp_path / "log").open("wb") as output:
        process = subprocess.Popen(
            [*private, "sh", "-c", IMAGE],
            env=os.environ
            | {
                "IMAGE": str(image),
                "CONFIG": str(place.configuration),
                "NEEDED": " ".join(sorted(needed, key=len)),
                "PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
                "RUN": only("RUN").words,
                "STARTED": started,
                "USER": only("USER").words,
                "WORKDIR": only("WORKDIR").words,
            },
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_started(RunningServer(place.port, process, tmp_path / "log"))
        assert is_ready(place)
        records = image / "data" / "sow" / "orders.json.sow"
        found = records.stat()
        assert f"{found.st_uid}:{found.st_gid}" == only("USER").words
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def run_builder(*words: str, timeout: float = WAIT_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.fixture(scope="module")
def builder() -> str:
    """A program that builds images and runs them here."""
    reasons = []
    for name in BUILDERS:
        if shutil.which(name) is None:
            reasons.append(f"{name} is not installed")
        elif name == "buildah":
            reasons.append("buildah runs no images")
        elif (info := run_builder(name, "info", timeout=60)).returncode:
            last = (info.stderr or info.stdout).strip().splitlines()[-1:]
            reasons.append(f"{name} does not work here: {' '.join(last)}")
        else:
            return name
    pytest.skip("; ".join(reasons))


@pytest.mark.timeout(MAX_BUILD)
def test_the_image_is_built_and_runs(builder: str) -> None:
    tag = f"amperage-test-{os.getpid()}"
    form = ("--format", "docker") if builder == "podman" else ()
    built = run_builder(
        builder, "build", *form, "--file", "Containerfile", "--tag", tag, ".", timeout=MAX_BUILD
    )
    if built.returncode and re.search("pull|registry|resolve|lookup", built.stderr):
        pytest.skip(f"the base image cannot be had: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    try:
        started = run_builder(builder, "run", "--detach", "--name", tag, tag)
        assert started.returncode == 0, started.stderr

        def check() -> bool:
            return run_builder(builder, "exec", tag, "container-health").returncode == 0

        wait_until(check, lambda: run_builder(builder, "logs", tag).stdout)
        publish = "echo 1 | spark publish -server localhost:9007 -type json -topic numbers"
        assert run_builder(builder, "exec", tag, "sh", "-c", publish).returncode == 0
        assert run_builder(builder, "exec", tag, "id", "-u").stdout != "0\n"
        assert run_builder(builder, "stop", "--time", "60", tag, timeout=120).returncode == 0
        ended = run_builder(builder, "inspect", "--format", "{{.State.ExitCode}}", tag)
        assert ended.stdout == "0\n"
    finally:
        run_builder(builder, "rm", "--force", tag)
        run_builder(builder, "rmi", "--force", tag)
