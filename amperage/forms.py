"""The two forms of the message path: compiled, and as it is written.

Modules through which every message goes are compiled by mypyc when the package is built (setup.py),
all into one library, in which they call each other directly. So they run in one form together: the
compiled one, or, if any is not what it was when it was compiled, all as they are written. The same
holds where AMPERAGE_PURE=1 is in the environment, for debugging.

Compiled modules keep to the features that mypyc supports. The gain of all of them together was
measured (docs/performance.md). Their neighbours are left out for a reason:

- `server.subscriptions.envelope` is copied, which objects of compiled classes cannot be;
- `amperage.wire.header`, `server.journal.entry`, `server.sow.slab_format` and `server.sow.keys`
  have msgspec's structs, numbers with names and protocols that are asked for at run time, of which
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
    "amperage.wire.framing",
    "amperage.wire.numbered",
    "amperage.wire.runs",
    "server.base.crowds",
    "server.base.tally",
    "server.commands.acks",
    "server.commands.dispatch",
    "server.commands.memory",
    "server.commands.persisted_acks",
    "server.commands.plain_acks",
    "server.commands.plain_publish",
    "server.commands.publish",
    "server.commands.publish_runs",
    "server.commands.repeated_subscribe",
    "server.commands.subscribe",
    "server.core.inbox",
    "server.core.intake",
    "server.core.session",
    "server.core.turns",
    "server.expressions.prepared",
    "server.expressions.printer",
    "server.journal.batches",
    "server.journal.blocks",
    "server.journal.writer",
    "server.sow.file_store",
    "server.sow.hash_index",
    "server.sow.memo_index",
    "server.sow.memory_store",
    "server.sow.slab_file",
    "server.sow.slab_log",
    "server.sow.table",
    "server.sow.topic",
    "server.subscriptions.audience",
    "server.subscriptions.delivery",
    "server.subscriptions.field_index",
    "server.subscriptions.filter_costs",
    "server.subscriptions.matching",
    "server.subscriptions.message_run",
    "server.subscriptions.outbox",
    "server.subscriptions.presentation",
    "server.subscriptions.record_audience",
    "server.subscriptions.record_delivery",
    "server.subscriptions.run_matching",
    "server.subscriptions.slow_clients",
    "server.subscriptions.value_matching",
    "server.topics.arrivals",
    "server.topics.journaled",
    "server.topics.receiving",
    "server.topics.stored",
    "server.topics.table",
    "server.topics.topic",
    "server.topics.topic_journal",
)
"""The modules of the message path."""

LIBRARY: Final = "message_path"
"""The name of the library that they are compiled into."""
_HOME: Final = "amperage"
_PACKAGES: Final = (_HOME, "server")
_DIGEST: Final = f"{LIBRARY}.digest"


class SourceFinder(MetaPathFinder):
    """Finds modules as they are written, also where a compiled form stands beside."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - finders are called with it
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`; the next finder finds a module without a source."""
        if fullname.partition(".")[0] not in _PACKAGES:
            return None
        for place in path or ():
            found = FileFinder(place, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
            if found is not None and found.loader is not None:
                return found
        return None


def choose(root: Path) -> None:
    """Decide which form is run, before any of the modules is imported.

    Args:
        root: the directory that the packages stand in.
    """
    as_written = os.environ.get("AMPERAGE_PURE", "") not in ("", "0")
    if not as_written and (trouble := compiled_trouble(root)):
        as_written = True
        print(
            f"{root}: the message path {trouble}, and is run as it is"
            " written, which takes more time. `make server` compiles it; AMPERAGE_PURE=1 says that"
            " this is meant.",
            file=sys.stderr,
        )
    if as_written:
        sys.meta_path.insert(0, SourceFinder())


def compiled_trouble(root: Path) -> str:
    """Return why the compiled form that is in a checkout must not be run, or nothing.

    An installation outside a checkout does not change, and is not looked at.
    """
    if not (root / "setup.py").exists():
        return ""
    library = _library(root)
    parts = [library, *(source.with_suffix(EXTENSION_SUFFIXES[0]) for source in sources(root))]
    there = [part.exists() for part in parts]
    if not any(there):
        return ""
    if not all(there):
        return f"is compiled in part only ({parts[there.index(False)].name} is missing)"
    return "has changed since it was compiled" if _is_stale(root, library) else ""


def _is_stale(root: Path, library: Path) -> bool:
    """Return whether the sources differ from those that were compiled.

    Only sources that are newer than the library are read: changing branches back and forth leaves
    their content the same.
    """
    made = library.stat().st_mtime
    if all(source.stat().st_mtime <= made for source in sources(root)):
        return False
    digest = root / _HOME / _DIGEST
    return not digest.exists() or digest.read_text() != digest_of(root)


def note_digest(root: Path, digest: str) -> None:
    """Record which sources have been compiled: `digest_of` them, see `compiled_trouble`."""
    (root / _HOME / _DIGEST).write_text(digest)


def digest_of(root: Path) -> str:
    """Return a digest of the sources."""
    digest = sha256()
    for source in sources(root):
        digest.update(b"%s\n%b\n" % (str(source.relative_to(root)).encode(), source.read_bytes()))
    return digest.hexdigest()


def _library(root: Path) -> Path:
    return root / _HOME / f"{LIBRARY}__mypyc{EXTENSION_SUFFIXES[0]}"


def sources(root: Path) -> Iterator[Path]:
    """Yield the files that are compiled."""
    return (root.joinpath(*name.split(".")).with_suffix(".py") for name in COMPILED)


def forget_compiled(root: Path) -> None:
    """Remove the compiled form from a checkout, also of modules that are compiled no more."""
    for package in _PACKAGES:
        for compiled in (root / package).rglob(f"*{EXTENSION_SUFFIXES[0]}"):
            name = compiled.name.removesuffix(EXTENSION_SUFFIXES[0])
            if name == f"{LIBRARY}__mypyc" or compiled.with_name(f"{name}.py").exists():
                compiled.unlink()
    (root / _HOME / _DIGEST).unlink(missing_ok=True)
