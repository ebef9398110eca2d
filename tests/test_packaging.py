"""What is shipped: sources that can be built, packages that bring their pages, a server of its own.

The tree is copied first, without anything that is made from it, as a fresh checkout is: what an
earlier build has left behind would hide what is missing. A source archive is made of it, and of
that the wheel that is installed, upgraded and removed, in an environment that borrows the libraries
of this one: nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from amperage.compiled_modules import COMPILED, LIBRARY, compiled_trouble
from config_schema.version import VERSION
from tests.support.long_form import ONLY_LONG
from tests.support.packages import PACKAGES
from tests.support.quick import quick_command
from tests.support.server import COMMAND, RunningServer, free_port, wait_until_started
from tests.support.waiting import WAIT_SECONDS

ROOT = Path(__file__).parents[1]
MADE = (".*", "*.egg-info", "build", "dist", "__pycache__", "*.so", "*.c", "*.digest")
COMPLETIONS = {
    "bash": "bash-completion/completions",
    "fish": "fish/vendor_completions.d",
    "zsh": "zsh/site-functions",
}
"""Where shells look for what completes commands."""

SHIPPED_FOLDERS = (
    "benchmarks",
    "completions",
    "docs",
    "man",
    "sample_configs",
    "schemas",
    "server",
    "tests",
)


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. It is not to find the checkout, which Spark has been told of."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=ours | environment,
    )


def build(kind: str, source: Path, **environment: str) -> Path:
    """Have the build backend make a distribution, as pip does, with the same date each time."""
    out = source / "out"
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    environment = {"SOURCE_DATE_EPOCH": "1500000000", **environment}
    made = run(sys.executable, "-c", code, cwd=source, **environment)
    assert made.returncode == 0, made.stderr
    return next(out.iterdir())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh checkout."""
    path = tmp_path_factory.mktemp("checkout") / "amperage"
    shutil.copytree(ROOT, path, ignore=shutil.ignore_patterns(*MADE))
    return path


@pytest.fixture(scope="module")
def source_archive(checkout: Path) -> Path:
    """Its source distribution, built in a copy of it."""
    return build("sdist", Path(shutil.copytree(checkout, checkout.with_name("copy"))))


def test_the_source_distribution_has_what_a_checkout_has(
    checkout: Path, source_archive: Path
) -> None:
    """Sources of compiled modules, pages, samples and tests; nothing that is made from them."""
    with tarfile.open(source_archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for folder in SHIPPED_FOLDERS:
        files = {path for path in (checkout / folder).rglob("*") if path.is_file()}
        assert {str(path.relative_to(checkout)) for path in files} - names == set()
    assert {"Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md"} <= names
    assert not [one for one in names if re.match(r"(amperage|server)/.*\.c$", one)]


@pytest.fixture(scope="module")
def quick_wheel(source_archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source distribution, with what this checkout was compiled to."""
    return build_quickly(source_archive, tmp_path_factory.mktemp("unpacked"))


@pytest.fixture(scope="module")
def wheel(
    source_archive: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Path:
    """The wheel that is built from the source distribution.

    To compile everything takes minutes of a processor. Only long runs do that.
    """
    if not request.config.getoption("--long"):
        quick: Path = request.getfixturevalue("quick_wheel")
        return quick
    path = tmp_path_factory.mktemp("unpacked")
    return build("wheel", unpack(source_archive, path), CC=str(quick_compiler(path)))


def unpack(source_archive: Path, directory: Path) -> Path:
    """Unpack a source distribution there, and return where its files are."""
    assert run("tar", "-xf", str(source_archive), cwd=directory).returncode == 0
    return directory / source_archive.name.removesuffix(".tar.gz")


def build_quickly(source_archive: Path, directory: Path) -> Path:
    """Build a wheel as if an earlier build had compiled everything."""
    unpacked = unpack(source_archive, directory)
    take_compiled(unpacked)
    return build("wheel", unpacked, CC=str(no_compiler(directory)), AMPERAGE_PURE="1")


def take_compiled(unpacked: Path) -> None:
    """Put what this checkout was compiled to where a build of the sources would put it."""
    assert compiled_trouble(ROOT) == ""
    built = unpacked / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for package in ("amperage", "pipeline", "server"):
        for path in (ROOT / package).rglob("*.c"):
            # Written now: Cython writes again what is older than its own files, which may be new.
            shutil.copyfile(path, unpacked / path.relative_to(ROOT))
        for path in (ROOT / package).rglob("*.so"):
            target = built / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def no_compiler(directory: Path) -> Path:
    """A C compiler that is there, and compiles nothing."""
    compiler = directory / "cc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    return compiler


def quick_compiler(directory: Path) -> Path:
    """A C compiler that does without what makes programs quick: it takes a third of the time."""
    compiler = directory / "cc"
    compiler.write_text('#!/bin/sh\nexec gcc "$@" -O0\n')
    compiler.chmod(0o755)
    return compiler


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_wheel_is_built_from_the_source_distribution(checkout: Path, wheel: Path) -> None:
    """It has all of the packages, the manual pages, documentation and samples; no generated C."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    shared = {name.partition(".data/data/share/")[2] for name in names}
    for path in (ROOT / "man").iterdir():
        assert f"man/man{path.suffix[1:]}/{path.name}" in shared
    for shell, place in COMPLETIONS.items():
        for path in (ROOT / "completions" / shell).iterdir():
            assert f"{place}/{path.name}" in shared
    for folder in ("docs", "sample_configs", "schemas"):
        for path in (ROOT / folder).rglob("*.*"):
            assert f"amperage/{path.relative_to(ROOT)}" in shared
    for package in PACKAGES:
        files = {path for path in (checkout / package).rglob("*") if path.is_file()}
        compiled = {path for path in files if path.suffix in (".pyx", ".pxd", ".h")}
        assert {str(path.relative_to(checkout)) for path in files - compiled} - {*names} == set()
    compiled_paths = [
        str(path.relative_to(ROOT))
        for package in ("amperage", "pipeline", "server")
        for path in (ROOT / package).rglob("*.pyx")
    ]
    compiled_paths += [f"{name.replace('.', '/')}.py" for name in COMPILED]
    compiled_paths.append(f"amperage/{LIBRARY}__mypyc.py")
    for stem in (path.rpartition(".")[0] for path in compiled_paths):
        assert [name for name in names if name.startswith(f"{stem}.") and name.endswith(".so")]
    assert not [name for name in names if name.endswith((".c", ".h", ".pyx", ".pxd", ".digest"))]


def test_the_same_sources_make_the_same_source_distribution(
    checkout: Path, source_archive: Path, tmp_path: Path
) -> None:
    """Whenever and wherever they are built, if SOURCE_DATE_EPOCH says when they were changed."""
    copy = Path(shutil.copytree(checkout, tmp_path / "another" / "place"))
    for path in copy.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    assert digest(build("sdist", copy)) == digest(source_archive)


@ONLY_LONG
def test_the_same_source_distribution_makes_the_same_wheel(
    source_archive: Path, quick_wheel: Path, tmp_path: Path
) -> None:
    assert digest(build_quickly(source_archive, tmp_path)) == digest(quick_wheel)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_who_has_no_compiler_is_told_what_to_install(source_archive: Path) -> None:
    """In the last lines, which pip shows; the copy that the archive was made in is no cleaner.

    The modules in Cython come first, also where those of the message path are compiled: without
    these, nothing else happens.
    """
    copy = source_archive.parents[1]
    environment = {"CC": "/missing/cc", "AMPERAGE_PURE": "1"}
    done = run(sys.executable, "setup.py", "-q", "build_ext", "--force", cwd=copy, **environment)
    assert done.returncode == 1
    *_, error, advice = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert "/missing/cc" in error
    assert "it takes a C compiler and the headers of Python" in advice
    assert "apt install gcc python3-dev" in advice


@ONLY_LONG
@pytest.mark.parametrize("trouble", ["type", "compiler"])
def test_where_the_message_path_cannot_be_compiled_it_says_what_does_without(
    checkout: Path, tmp_path: Path, trouble: str
) -> None:
    """Whether mypyc does not take it, or the C compiler what mypyc makes of it.

    All of the message path, and the modules in Cython, would take half a minute: here it is one
    module of each.
    """
    not_compiled = shutil.ignore_patterns("benchmarks", "docs", "man", "static", "tests")
    copy = Path(shutil.copytree(checkout, tmp_path / "copy", ignore=not_compiled))
    for package in ("amperage", "pipeline", "server"):
        for path in (copy / package).rglob("*.pyx"):
            path.unlink()
        (copy / package / "one.pyx").write_text("")
    forms = copy / "amperage" / "compiled_modules.py"
    text = forms.read_text()
    listed = text[text.index("COMPILED: Final = (") : text.index('"""The modules of the message')]
    forms.write_text(text.replace(listed, 'COMPILED: Final = ("server.util.counters",)\n'))
    # What mypy knows of Python's own modules need not be found out twice.
    environment = {"MYPY_CACHE_DIR": str(checkout.with_name("mypy"))}
    if trouble == "type":
        with (copy / "server" / "util" / "counters.py").open("a") as source:
            source.write('\nMADE: int = "text"\n')
    else:
        compiler = tmp_path / "cc"
        compiler.write_text(
            '#!/bin/sh\ncase "$*" in *build/mypyc*) exit 1;; esac\nexec gcc "$@" -O0\n'
        )
        compiler.chmod(0o755)
        environment["CC"] = str(compiler)
    done = run(sys.executable, "setup.py", "-q", "build_ext", cwd=copy, **environment)
    assert done.returncode == 1
    assert "with AMPERAGE_PURE=1 in the environment they are not compiled" in done.stderr
    assert "Traceback" not in done.stderr


CONFIGURATION = """<AMPSConfig>
  <Name>kept</Name>
  <Admin><InetAddr>127.0.0.1:{admin}</InetAddr><FileName>stats.db</FileName></Admin>
  <Transports><Transport>
    <Name>any</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
    <ReuseAddr>true</ReuseAddr><Protocol>amps</Protocol>
  </Transport></Transports>
  <SOW><Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic></SOW>
  <TransactionLog>
    <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>
</AMPSConfig>"""

LATER = "99.0.0"


@dataclass(frozen=True)
class Installation:
    """An environment of its own, outside of the checkout.

    Attributes:
        environment: where it is.
        data: where servers run.
        port: where they listen.
        admin: where their admin interface does.
    """

    environment: Path
    data: Path
    port: int
    admin: int

    def command(self, name: str) -> Path:
        return self.environment / "bin" / name

    def run(self, name: str, *words: str | Path) -> str:
        """Run one of the commands, and give what it prints."""
        done = subprocess.run(
            [self.command(name), *words],
            cwd=self.data,
            env=self.variables,
            capture_output=True,
            text=True,
            input='{"id":1}\n',
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    @property
    def variables(self) -> dict[str, str]:
        return {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}

    def pip(self, *words: str | Path) -> str:
        """Run pip for this environment; it has none of its own."""
        pip = (sys.executable, "-m", "pip", "--python", str(self.command("python")))
        quiet = ("--disable-pip-version-check", "--no-input")
        done = run(*pip, *map(str, words), *quiet, cwd=self.data)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, wheel: Path) -> str:
        """Install a wheel; what it has is compiled when it is used, as most of it is not here."""
        return self.pip("install", "--no-deps", "--no-index", "--no-compile", wheel)

    @contextmanager
    def server(self) -> Iterator[Path]:
        """A server that runs from here; gives its log."""
        log = self.data / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [self.command("ampServer"), "config.xml"],
                cwd=self.data,
                env=self.variables,
                stdout=output,
                stderr=output,
            )
        try:
            wait_until_started(RunningServer(self.port, process, log))
            yield log
            process.terminate()
            assert process.wait(WAIT_SECONDS) == 0
        finally:
            process.kill()
            process.wait()

    def ask(self, path: str) -> str:
        """What the admin interface has there."""
        with urlopen(f"http://127.0.0.1:{self.admin}/{path}", timeout=WAIT_SECONDS) as answer:
            text: str = answer.read().decode()
        return text


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment with the libraries that the server needs, borrowed, and no Amperage."""
    base = tmp_path_factory.mktemp("installation")
    environment, libraries, data = base / "venv", base / "libraries", base / "data"
    for directory in (libraries, data):
        directory.mkdir()
    ours = re.compile("amperage|__editable__|" + "|".join(libraries_of("pipeline")))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not ours.match(path.name):
            (libraries / path.name).symlink_to(path)
    venv.create(environment, with_pip=False, symlinks=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(f"{libraries}\n")
    made = Installation(environment, data, free_port(), free_port())
    text = CONFIGURATION.format(port=made.port, admin=made.admin)
    (data / "config.xml").write_text(text)
    return made


def libraries_of(extra: str) -> list[str]:
    """What an extra installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [re.split(r"\W", one, maxsplit=1)[0] for one in project["optional-dependencies"][extra]]


def as_version(wheel: Path, version: str, directory: Path) -> Path:
    """A wheel of a later version, with nothing else that differs."""
    later = directory / wheel.name.replace(VERSION, version)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(later, "w") as target:
        for item in source.infolist():
            content = source.read(item)
            if item.filename.endswith(("METADATA", "RECORD", "config_schema/version.py")):
                content = content.replace(VERSION.encode(), version.encode())
            if item.filename.endswith("RECORD"):
                content = re.sub(rb",sha256=[^,]*,\d*", b",,", content)
            item.filename = item.filename.replace(f"-{VERSION}.", f"-{version}.")
            item.compress_type = zipfile.ZIP_STORED  # quicker
            target.writestr(item, content)
    return later


@ONLY_LONG
@pytest.mark.timeout(900)
def test_it_is_installed_used_upgraded_and_removed(
    wheel: Path, installation: Installation, tmp_path: Path
) -> None:
    """The data outlive all of that, and whatever is at work knows its version from one place."""
    at = ("-server", f"127.0.0.1:{installation.port}", "-type", "json", "-topic", "orders")
    share = installation.environment / "share"
    installation.install(wheel)
    assert f"Amperage {VERSION} " in installation.run("ampServer", "--version")
    assert installation.run("spark", "--version").startswith(f"spark {VERSION} ")
    sample = share / "amperage" / "sample_configs" / "first_message.xml"
    assert "is valid" in installation.run("ampServer", "--verify-config", sample)
    assert (share / "man" / "man1" / "ampServer.1").exists()
    assert installation.command("install-amps-daemon.sh").exists()
    with installation.server() as log:
        assert "published: 1" in installation.run("spark", "publish", *at)
        assert f"Amperage {VERSION}: runs" in log.read_text()
        assert str(ROOT) not in log.read_text()
        for script in re.findall('src="/(.*)"', installation.ask("")):
            assert installation.ask(script)

    assert f"amperage-{LATER}" in installation.install(as_version(wheel, LATER, tmp_path))
    assert f"Amperage {LATER} " in installation.run("ampServer", "--version")
    with installation.server() as log:
        assert f"Amperage {LATER}: runs" in log.read_text()
        assert '{"id":1}' in installation.run("spark", "sow", *at)

    assert f"amperage-{LATER}" in installation.pip("uninstall", "--yes", "amperage")
    left = {path.name for path in installation.command("").iterdir()}
    assert not [name for name in left if not name.startswith(("python", "activate", "Activate"))]
    assert not (share / "amperage").exists()
    assert {"orders.sow", "journal", "stats.db"} <= {
        path.name for path in installation.data.iterdir()
    }


@pytest.fixture
def without_spark(tmp_path: Path) -> dict[str, str]:
    """An environment in which the libraries of the pipeline seem not to be installed."""
    libraries = libraries_of("pipeline")
    assert "pyspark" in libraries
    for library in libraries:
        (tmp_path / f"{library}.py").write_text(
            f"raise ModuleNotFoundError(\"No module named '{library}'\", name='{library}')\n"
        )
    return {"PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_server_tools_and_client_do_without_spark(
    tmp_path: Path, without_spark: dict[str, str]
) -> None:
    """No module of theirs, wherever it is used, needs what only the pipeline needs."""
    code = (
        "import importlib, pkgutil\n"
        "import actions, amperage.client, amperage.wire, config_schema, server\n"
        "for package in (actions, amperage.client, amperage.wire, config_schema, server):\n"
        "    for module in pkgutil.walk_packages(package.__path__, f'{package.__name__}.'):\n"
        "        importlib.import_module(module.name)\n"
    )
    done = run(sys.executable, "-c", code, cwd=tmp_path, **without_spark)
    assert (done.returncode, done.stderr) == (0, "")
    version = run(*COMMAND, "--version", cwd=tmp_path, **without_spark)
    assert version.returncode == 0


@pytest.mark.parametrize("option", ["--help", "--version", "--print-completion=bash"])
def test_the_pipeline_explains_itself_without_spark(
    tmp_path: Path, without_spark: dict[str, str], option: str
) -> None:
    done = run(*quick_command("pipeline.cli"), option, cwd=tmp_path, **without_spark)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_pipeline_says_what_to_install(tmp_path: Path, without_spark: dict[str, str]) -> None:
    job = ("stats", str(tmp_path))
    done = run(sys.executable, "-m", "pipeline.cli", *job, cwd=tmp_path, **without_spark)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"amps-pipeline: Spark is not installed \(no module \w+\): "
        r"pip install 'amperage\[pipeline\]', or make install in a checkout\n",
        done.stderr,
    )


MAKEFILE_NEEDS = (
    "Makefile",
    "pyproject.toml",
    "setup.py",
    "config_schema/version.py",
    "scripts/build_needs.py",
)


def copy_of_makefile(directory: Path) -> None:
    """Copy the part of a checkout that `make` reads before it installs."""
    for name in ("amperage", "config_schema", "scripts", "server"):
        (directory / name).mkdir()
    for name in MAKEFILE_NEEDS:
        shutil.copy(ROOT / name, directory / name)


def test_make_says_first_that_there_is_no_compiler(tmp_path: Path) -> None:
    """Before anything is made or fetched."""
    copy_of_makefile(tmp_path)
    done = run("make", "run", f"PYTHON={sys.executable}", cwd=tmp_path, CC="/missing/cc")
    assert done.returncode != 0
    assert "Missing: the C compiler /missing/cc. " in done.stderr
    assert "apt install gcc python3-dev" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("goal", ["run", "test"])
def test_make_says_that_python_is_too_old(tmp_path: Path, goal: str) -> None:
    """Before anything is made, and how to name another."""
    old = tmp_path / "python-old"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit\nexit 1\n')
    old.chmod(0o755)
    copy_of_makefile(tmp_path)
    done = run("make", goal, f"PYTHON={old}", cwd=tmp_path)
    assert done.returncode != 0
    assert f"needs Python 3.11 or newer, and {old} is Python 3.9.2." in done.stderr
    assert f"make {goal} PYTHON=python3.12" in done.stderr
    assert not (tmp_path / ".venv").exists()
