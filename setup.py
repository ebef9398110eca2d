"""What pyproject.toml cannot say: which modules are compiled, and what that takes.

Cython compiles what is written for it, loops over bytes; mypyc the typed Python of the message path
(amperage/compiled_modules.py lists it), unless AMPERAGE_PURE=1 is in the environment.
"""

import gzip
import os
import re
import sys
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from runpy import run_path
from typing import Any

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CCompilerError, CompileError

_NEEDS = run_path("scripts/build_needs.py")
_ADVICE: str = _NEEDS["ADVICE"]
_ROOT = Path()
_WITH_CYTHON = ("amperage", "pipeline", "server")
_FORMS = run_path("amperage/compiled_modules.py")
_DIGEST: str = _FORMS["digest_of"](_ROOT)  # of what is about to be compiled
# Python's own flags, which CFLAGS takes the place of: both compilers count on numbers that wrap.
_ALWAYS = ["-fwrapv"]
_SANITIZERS = os.environ.get("AMPERAGE_SANITIZE", "")
_PURE_HELPS = (
    "The modules of the message path do without: with AMPERAGE_PURE=1 in the environment they are"
    " not compiled, and run as they are written, which takes more time"
)
_IS_PURE = os.environ.get("AMPERAGE_PURE", "") not in ("", "0")
# pip asks several times what there is before it builds; each time would take half a minute.
_IS_ASKED_ONLY = not {"egg_info", "dist_info", "sdist"}.isdisjoint(sys.argv)


class BuildExtensions(build_ext):
    """Compiles on all cores, and says what may help where something cannot be compiled."""

    def finalize_options(self) -> None:
        """Share modules out among all cores, unless a number is given."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        """Compile everything, and forget the compiled form that a checkout had."""
        is_in_place = self.inplace or self.editable_mode
        if is_in_place:
            _FORMS["forget_compiled"](_ROOT)
        super().run()
        if is_in_place and not _IS_PURE:
            _FORMS["note_digest"](_ROOT, _DIGEST)

    def build_extensions(self) -> None:
        """Compile all modules, also the sources of the largest side by side."""
        self.compiler.compile = _side_by_side(self.compiler.compile)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Compile a module.

        Raises:
            CompileError: that is not possible.
        """
        ext.extra_compile_args += _ALWAYS
        if _SANITIZERS:
            ext.extra_compile_args += [f"-fsanitize={_SANITIZERS}", "-fno-omit-frame-pointer", "-g"]
            ext.extra_link_args += [f"-fsanitize={_SANITIZERS}"]
        else:
            ext.extra_compile_args += ["-g0"]  # a quarter of the time goes into what debuggers read
        try:
            super().build_extension(ext)
        except (OSError, CCompilerError) as error:
            advice = f"{_ADVICE}. {_PURE_HELPS}" if _is_by_mypyc(ext) else _ADVICE
            raise CompileError(f"{error}\n{advice}") from error


class SourceDistribution(sdist):
    """Archives the same sources to the same bytes, if SOURCE_DATE_EPOCH is in the environment."""

    def make_archive(
        self,
        base_name: str,
        format: str,  # noqa: A002, ARG002 - setuptools gives it by that name
        root_dir: str | None = None,  # noqa: ARG002 - made from the current directory
        base_dir: str | None = None,
        **_: Any,
    ) -> str:
        """Write the archive, a .tar.gz whatever the format, and return its name."""
        now = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def normalized(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.uid, member.gid = now, 0, 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            return member

        path = f"{base_name}.tar.gz"
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=now) as compressed,
            tarfile.open(fileobj=compressed, mode="w") as archive,
        ):
            archive.add(base_dir or base_name, filter=normalized)
        return path


def _is_by_mypyc(ext: Extension) -> bool:
    return "mypyc" in Path(ext.sources[0]).parts


def _side_by_side(compile_in_turn: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def compile_all(sources: list[str], **options: Any) -> list[str]:
        def compile_one(source: str) -> list[str]:
            return compile_in_turn([source], **options)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [made for objects in pool.map(compile_one, sources) for made in objects]

    return compile_all


def _take_back_when_cleared(source: Path) -> None:
    """Let what mypyc keeps of a closure or a generator be used again only once it is empty.

    The code that mypyc 2.4 writes offers it for use, and then drops what it held. That may run code
    which takes it, or let another thread take it, whose variables are dropped then.
    """
    written = source.read_text()
    mended = re.sub(
        r"^( +)(\w+_free_instance) = self;\n((?: .*\n)*?)\1return;\n",
        r"\3\1if (\2 == NULL) {\n\1    \2 = self;\n\1    return;\n\1}\n",
        written,
        flags=re.MULTILINE,
    )
    if mended != written:
        source.write_text(mended)


def message_path() -> list[Extension]:
    """Return the modules that mypyc compiles.

    Types of libraries count as far as they are installed: where a wheel is built, they are not.
    """
    from mypyc.build import mypycify  # as it is written, all of this is installed without

    target = Path("build/mypyc")
    try:
        made: list[Extension] = mypycify(
            [
                "--config-file=",
                "--ignore-missing-imports",
                "--follow-imports=silent",
                *map(str, _FORMS["sources"](_ROOT)),
            ],
            opt_level="1",  # keeps installing short; mostly, Python's API is called
            debug_level="0",
            multi_file=True,
            group_name=f"amperage.{_FORMS['LIBRARY']}",
            target_dir=str(target),
        )
    except SystemExit as error:  # mypyc has printed what it does not take
        raise SystemExit(f"mypyc cannot compile the message path. {_PURE_HELPS}") from error
    for source in target.rglob("*.c"):
        _take_back_when_cleared(source)
    for extension in made:
        # What a compiler newer than mypyc warns of is no reason not to install.
        extension.include_dirs.append(str(target / "amperage"))
        arguments = extension.extra_compile_args
        extension.extra_compile_args = [one for one in arguments if one != "-Werror"]
    return made


def list_extensions() -> list[Extension]:
    """Return the modules in Cython, without their C, which is enough to list the sources."""
    paths = [path for package in _WITH_CYTHON for path in Path(package).rglob("*.pyx")]
    return [Extension(".".join(path.with_suffix("").parts), [str(path)]) for path in paths]


def generate_extensions() -> list[Extension]:
    """All modules that are compiled, with the C that Cython and mypyc write.

    Raises:
        SystemExit: there is no compiler, or no headers.
    """
    if lacking := _NEEDS["missing"]():
        raise SystemExit(f"error: missing: {', '.join(lacking)}\n{_ADVICE}")
    modules: list[Extension] = cythonize([f"{package}/**/*.pyx" for package in _WITH_CYTHON])
    return modules if _IS_PURE else modules + message_path()


setup(
    ext_modules=list_extensions() if _IS_ASKED_ONLY else generate_extensions(),
    cmdclass={"build_ext": BuildExtensions, "sdist": SourceDistribution},
)
