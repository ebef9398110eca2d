"""The two forms of the message path: compiled, and as it is written.

Modules through which every message goes are compiled by mypyc when the package is built (setup.py),
all into one library, in which they call each other directly. So they run in one form together: the
compiled one, or, if any is not what it was when it was compiled, all as they are written. The same
holds where AMPERAGE_PURE=1 is in the environment: what is debugged is run by the interpreter then.

What is compiled keeps to what mypyc takes, and what all of it gains together was measured
(docs/performance.md). Their neighbours are left out for a reason:

- `server.subscriptions.envelope` is copied, which objects of compiled classes cannot be;
- `amperage.wire.header`, `server.journal.entry`, `server.sow.slab_format` and `server.sow.keys` have
  msgspec's structs, numbers with names and protocols that are asked for at run time, of which
  nothing gets faster;
- the others of `server.core` and `server.commands` are asked once per read, or per command of a
  kind that does not come by the hundred thousand, as publishes and subscribes do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import Final

COMPILED: Final = (
    "base.crowds",
    "base.tally",
    "commands.acks",
    "commands.dispatch",
    "commands.memory",
    "commands.persisted_acks",
    "commands.plain_acks",
    "commands.plain_publish",
    "commands.publish",
    "commands.publish_runs",
    "commands.repeated_subscribe",
    "commands.subscribe",
    "core.inbox",
    "core.intake",
    "core.session",
    "core.turns",
    "expressions.prepared",
    "expressions.printer",
    "journal.batches",
    "journal.blocks",
    "journal.writer",
    "sow.file_store",
    "sow.hash_index",
    "sow.memo_index",
    "sow.memory_store",
    "sow.slab_file",
    "sow.slab_log",
    "sow.table",
    "sow.topic",
    "subscriptions.audience",
    "subscriptions.delivery",
    "subscriptions.field_index",
    "subscriptions.filter_costs",
    "subscriptions.matching",
    "subscriptions.message_run",
    "subscriptions.outbox",
    "subscriptions.presentation",
    "subscriptions.record_audience",
    "subscriptions.record_delivery",
    "subscriptions.run_matching",
    "subscriptions.slow_clients",
    "subscriptions.value_matching",
    "topics.arrivals",
    "topics.journaled",
    "topics.receiving",
    "topics.stored",
    "topics.table",
    "topics.topic",
    "topics.topic_journal",
    "wire.framing",
    "wire.numbered",
    "wire.runs",
)
"""The modules of the message path, in this package."""

LIBRARY: Final = "message_path"
"""What the library that they are compiled into is called."""
_DIGEST: Final = f"{LIBRARY}.digest"


class SourceFinder(MetaPathFinder):
    """Finds modules of a package as they are written, wherever there is a compiled form beside.

    Args:
        package: the package's name.
    """

    def __init__(self, package: str) -> None:
        self._prefix = f"{package}."

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - what finders are called with
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`; whoever comes next finds what has no source."""
        if not fullname.startswith(self._prefix):
            return None
        for place in path or ():
            found = FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
            if found is not None and found.loader is not None:
                return found
        return None


def choose(package: Path) -> None:
    """Decide which form is run, before any of the modules is imported.

    Args:
        package: the directory of this package.
    """
    as_written = os.environ.get("AMPERAGE_PURE", "") not in ("", "0")
    if not as_written and (trouble := what_is_wrong(package)):
        as_written = True
        print(
            f"{package}: the message path {trouble}, and is run as it is"
            " written, which takes more time. `make server` compiles it; AMPERAGE_PURE=1 says that"
            " this is meant.",
            file=sys.stderr,
        )
    if as_written:
        sys.meta_path.insert(0, SourceFinder(package.name))


def what_is_wrong(package: Path) -> str:
    """Why the compiled form that is in a checkout must not be run, or nothing.

    What is installed otherwise does not change, and is not looked at.
    """
    if not (package.parent / "setup.py").exists():
        return ""
    library = _library(package)
    parts = [library, *(source.with_suffix(EXTENSION_SUFFIXES[0]) for source in sources(package))]
    there = [part.exists() for part in parts]
    if not any(there):
        return ""
    if not all(there):
        return f"is compiled in part only ({parts[there.index(False)].name} is missing)"
    return "has changed since it was compiled" if _is_stale(package, library) else ""


def _is_stale(package: Path, library: Path) -> bool:
    """Whether the sources are not those that were compiled.

    Those that have been written since are read: changing branches back and forth does not make
    them others.
    """
    made = library.stat().st_mtime
    if all(source.stat().st_mtime <= made for source in sources(package)):
        return False
    digest = package / _DIGEST
    return not digest.exists() or digest.read_text() != digest_of(package)


def note_digest(package: Path, digest: str) -> None:
    """Write down what has been compiled, as `digest_of` knew it before; see `what_is_wrong`."""
    (package / _DIGEST).write_text(digest)


def digest_of(package: Path) -> str:
    """What tells the sources from those of another time."""
    digest = sha256()
    for source in sources(package):
        digest.update(
            b"%s\n%b\n" % (str(source.relative_to(package)).encode(), source.read_bytes())
        )
    return digest.hexdigest()


def _library(package: Path) -> Path:
    return package / f"{LIBRARY}__mypyc{EXTENSION_SUFFIXES[0]}"


def sources(package: Path) -> Iterator[Path]:
    """The files that are compiled."""
    return (package.joinpath(*name.split(".")).with_suffix(".py") for name in COMPILED)


def forget_compiled(package: Path) -> None:
    """Remove the compiled form from a checkout, also of modules that are compiled no more."""
    for compiled in package.rglob(f"*{EXTENSION_SUFFIXES[0]}"):
        name = compiled.name.removesuffix(EXTENSION_SUFFIXES[0])
        if name == f"{LIBRARY}__mypyc" or compiled.with_name(f"{name}.py").exists():
            compiled.unlink()
    (package / _DIGEST).unlink(missing_ok=True)
