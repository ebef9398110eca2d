#!/usr/bin/env python3
"""Makes the Debian package, the RPM and the SBOM of the program that runs this script.

    /usr/bin/python3 -m venv .packages && .packages/bin/pip install '.[packages,sql,oauth,otel]'
    .packages/bin/python scripts/make_packages.py dist

`make packages` does all of that. The packages have what `amps-service install` copies to /opt/amps,
with its units, and besides bytecode, links to the commands and manual pages, and the SBOM. The
interpreter is the distribution's, on which they depend. The RPM is made where there is `rpmbuild`.
"""

from __future__ import annotations

import argparse
import compileall
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from config_schema.version import VERSION
from server.cli.service.installer import PREFIX, InstallTarget, install

_HERE: Final = Path(__file__).resolve().parents[1]
_PARTS: Final = _HERE / "packaging" / "linux"
_SBOM: Final = f"amperage-{VERSION}.cdx.json"
_SCRIPTS: Final = {
    "postinst": "after-install.sh",
    "prerm": "before-remove.sh",
    "postrm": "after-remove.sh",
}
"""The maintainer scripts: their names in a Debian package, and ours."""


def main() -> None:
    """Make the packages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path, help="directory of the packages")
    parser.add_argument("--uncompressed", action="store_true", help="large packages, made quickly")
    options = parser.parse_args()
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    interpreter = Path(sys.executable).resolve()
    if interpreter.parent != Path("/usr/bin"):
        sys.exit(f"{interpreter} is of no package: make packages PYTHON=/usr/bin/python3")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "root"
        _make_tree(root)
        shutil.copyfile(root / PREFIX.relative_to("/") / "share" / "amperage" / _SBOM, out / _SBOM)
        print(out / _SBOM)
        if shutil.which("rpmbuild"):
            print(_make_rpm(Path(directory), root, interpreter, out, options.uncompressed))
        print(_make_deb(root, interpreter, out, options.uncompressed))


def _make_tree(root: Path) -> None:
    """Make what the packages install."""
    root.mkdir(mode=0o755)
    for step in install(InstallTarget(root, "amps", "systemd")):
        print(step)
    program = root / PREFIX.relative_to("/")
    # The service may write no bytecode there, and would compile everything at each start.
    is_compiled = compileall.compile_dir(
        program / "lib",
        stripdir=str(root),
        quiet=1,
        workers=0,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not is_compiled:
        sys.exit("a module of the program cannot be compiled")
    for command in sorted((program / "bin").iterdir()):
        if command.name != "python" and command.suffix != ".sh":
            _link(root / "usr" / "bin" / command.name, PREFIX / "bin" / command.name)
    users = root / "usr" / "lib" / "sysusers.d" / "amps.conf"
    users.parent.mkdir(parents=True)
    shutil.copyfile(_PARTS / users.name, users)
    _write_sbom(program)
    for path in (root, *root.rglob("*")):  # whatever the umask is
        if not path.is_symlink():
            is_executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_executable else 0o644)


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def _write_sbom(program: Path) -> None:
    """Write the SBOM of all Python packages in the program, in CycloneDX's form."""
    path = program / "share" / "amperage" / _SBOM
    path.parent.mkdir(parents=True, exist_ok=True)
    words = ["--output-reproducible", "--output-file", str(path), str(program / "bin" / "python")]
    _run(sys.executable, "-m", "cyclonedx_py", "environment", *words)


def _make_deb(root: Path, interpreter: Path, out: Path, is_uncompressed: bool) -> Path:
    """Make the Debian package; the tree gets the control files."""
    architecture = _run("dpkg", "--print-architecture").strip()
    kilobytes = sum(path.lstat().st_size for path in root.rglob("*")) // 1024
    control = root / "DEBIAN"
    control.mkdir(mode=0o755)
    text = _filled(
        "control",
        VERSION=VERSION,
        ARCHITECTURE=architecture,
        PYTHON=interpreter.name,
        KILOBYTES=str(kilobytes),
    )
    (control / "control").write_text(text)
    for name, source in _SCRIPTS.items():
        shutil.copyfile(_PARTS / source, control / name)
        (control / name).chmod(0o755)
    path = out / f"amperage_{VERSION}-1_{architecture}.deb"
    compression = ["-Znone"] if is_uncompressed else []
    _run("dpkg-deb", "--root-owner-group", *compression, "--build", str(root), str(path))
    return path


def _make_rpm(
    directory: Path, root: Path, interpreter: Path, out: Path, is_uncompressed: bool
) -> Path:
    """Make the RPM."""
    scripts = {
        source.removesuffix(".sh").replace("-", "_").upper(): (_PARTS / source).read_text()
        for source in _SCRIPTS.values()
    }
    spec = directory / "amperage.spec"
    spec.write_text(
        _filled(
            "amperage.spec",
            VERSION=VERSION,
            INTERPRETER=str(interpreter),
            ROOT=str(root),
            FILES="\n".join(_file_list(root)),
            **scripts,
        )
    )
    made = directory / "rpm"
    settings = {
        "_topdir": str(directory / "rpmbuild"),
        "_rpmdir": str(made),
        "_buildhost": "localhost",
        "use_source_date_epoch_as_buildtime": "1",
        "_binary_payload": "w.ufdio" if is_uncompressed else "w19.zstdio",
    }
    defined = [word for item in settings.items() for word in ("--define", " ".join(item))]
    _run("rpmbuild", "-bb", *defined, str(spec))
    [package] = made.rglob("*.rpm")
    return Path(shutil.copy(package, out))


def _file_list(root: Path) -> Iterator[str]:
    """Yield the files of the RPM, and the directories that are its own."""
    yield "%defattr(-,root,root)"
    yield from (str(PREFIX), "%dir /opt/etc/amps", "%dir /var/lib/amps")
    for path in sorted((root / "usr").rglob("*")):
        if path.is_symlink() or path.is_file():
            yield f"/{path.relative_to(root)}"


def _filled(name: str, **values: str) -> str:
    """Return a file of packaging/linux with its placeholders filled."""
    text = (_PARTS / name).read_text()
    for placeholder, value in values.items():
        text = text.replace(f"@{placeholder}@", value)
    return text


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
