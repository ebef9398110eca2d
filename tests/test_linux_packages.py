"""The Debian package and the RPM: made, installed in a root directory of their own, and started.

They are made of this checkout and the libraries of this environment: nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from config_schema.version import VERSION
from tests.support.long_form import ONLY_LONG
from tests.support.server import ROOT, RunningServer, free_port, wait_until_started
from tests.support.waiting import WAIT_SECONDS

pytestmark = ONLY_LONG

PYTHON: Final = Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
"""The distribution's interpreter, which the packages depend on."""

MAX_SECONDS: Final = 900
"""The maximum time of a command: half a gigabyte is written several times."""

CONFIGURATION: Final = """<AMPSConfig>
  <Name>packaged</Name>
  <Transports><Transport>
    <Name>any</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
    <ReuseAddr>true</ReuseAddr><Protocol>amps</Protocol>
  </Transport></Transports>
  <Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>
</AMPSConfig>"""


def run(*words: str | Path) -> str:
    done = subprocess.run(
        words,
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTHON")},
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of the packages."""
    if not PYTHON.exists() or shutil.which("dpkg-deb") is None or os.geteuid() != 0:
        pytest.skip(f"takes {PYTHON}, dpkg-deb and root")
    directory = tmp_path_factory.mktemp("packages")
    environment = directory / "environment"
    run(PYTHON, "-m", "venv", "--without-pip", environment)
    borrowed = environment / "lib" / PYTHON.name / "site-packages" / "borrowed.pth"
    borrowed.write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    made, script = directory / "dist", ROOT / "scripts" / "make_packages.py"
    run(environment / "bin/python", script, made, "--uncompressed")
    yield made
    shutil.rmtree(directory)


def install_deb(packages: Path, root: Path) -> None:
    for name in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    (root / "etc").mkdir()
    [package] = packages.glob("*.deb")
    dpkg(root, "--force-depends", "--install", package)  # nothing else is in that root
    if shutil.which("systemd-sysusers"):
        assert "\namps:" in "\n" + (root / "etc/passwd").read_text()


def remove_deb(root: Path) -> None:
    dpkg(root, "--remove", "amperage")


def dpkg(root: Path, *words: str | Path) -> None:
    """Run dpkg for a root directory without a shell, which maintainer scripts would need there."""
    run("dpkg", f"--root={root}", "--force-script-chrootless", "--log=/dev/null", *words)


def install_rpm(packages: Path, root: Path) -> None:
    if shutil.which("rpmbuild") is None:
        pytest.skip("takes rpmbuild")
    [package] = packages.glob("*.rpm")
    assert str(PYTHON) in run("rpm", "--query", "--requires", "--package", package).splitlines()
    run("rpm", "--root", root, "--install", "--nodeps", "--noscripts", package)


def remove_rpm(root: Path) -> None:
    run("rpm", "--root", root, "--erase", "--noscripts", "amperage")


@pytest.mark.timeout(2 * MAX_SECONDS)
@pytest.mark.parametrize(
    ("install", "remove"), [(install_deb, remove_deb), (install_rpm, remove_rpm)]
)
def test_a_package_is_installed_started_and_removed(
    packages: Path,
    tmp_path: Path,
    install: Callable[[Path, Path], None],
    remove: Callable[[Path], None],
) -> None:
    """Manual pages and commands are where they are looked for; configurations and data stay."""
    root = tmp_path / "root"
    root.mkdir()
    install(packages, root)
    for link in (root / "usr/share/man/man1/ampServer.1", root / "usr/bin/ampServer"):
        assert (root / link.readlink().relative_to("/")).is_file()
    assert (root / "usr/lib/systemd/system/amps.service").is_file()
    port = free_port()
    config, data = root / "opt/etc/amps/config.xml", root / "var/lib/amps"
    config.write_text(CONFIGURATION.format(port=port))
    log = data / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [root / "opt/amps/bin/python", "-B", root / "opt/amps/bin/ampServer", config],
            cwd=data,
            env={"PATH": os.environ["PATH"]},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until_started(RunningServer(port, process, log))
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    remove(root)
    assert not (root / "opt/amps").exists()
    assert config.exists()
    assert log.exists()
    assert not [*root.glob("usr/share/man/man?/*")]


def test_the_sbom_is_valid_and_names_what_is_installed(packages: Path) -> None:
    # Imported only here: it takes a second, which each collection of tests would spend.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = (packages / f"amperage-{VERSION}.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    for name in ("pkg:pypi/lxml@", "pkg:pypi/numpy@", f"pkg:pypi/amperage@{VERSION}"):
        assert name in text
    assert "pkg:pypi/pytest@" not in text
