"""The two forms of the message path: compiled and interpreted.

The modules that handle every message are compiled by mypyc when the package is built (setup.py),
all into one library, in which they call each other directly. They all run in the same form: the
compiled one, or the interpreted one if any source has changed since it was compiled.
AMPERAGE_PURE=1 in the environment selects the interpreted form, for debugging.

Compiled modules use only features that mypyc supports. Objects of compiled classes have no
dictionary, so these classes have no `__slots__`. The gain of all of them together was measured
(docs/performance.md). Some modules beside them are not compiled, for these reasons:

- `server.topics.subscriptions.delivery.envelope`: its objects are copied, and objects of compiled
  classes cannot be;
- `amperage.wire.header`, `server.storage.journal.format.entry`,
  `server.storage.sow.slab.slab_format` and `server.storage.sow.keys.key_source`: they consist of
  msgspec structs, enums and protocols, which do not get faster;
- `server.queues.core.consumers` and `server.queues.core.consumer_rotation`: they tell entries apart
  by the identity of tuples, which compiled code does not keep; `server.queues.core.events` and
  `server.queues.topic.filter_matcher`: they consist of msgspec structs and named tuples whose types
  are imported for type checking only;
- the other modules of `server.engine` and `server.engine.commands`: they run once per read, or for
  commands that are rare compared with publishes and subscribes, which arrive by the hundred
  thousand.
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
    "amperage.wire.frame_batches",
    "server.util.multimap",
    "server.util.counters",
    "server.engine.commands.acks",
    "server.engine.commands.dispatch",
    "server.engine.commands.memory_account",
    "server.engine.commands.persisted_acks",
    "server.engine.commands.queue_ack_fast_path",
    "server.engine.commands.publish_fast_path",
    "server.engine.commands.publish",
    "server.engine.commands.publish_batches",
    "server.engine.commands.subscribe_fast_path",
    "server.engine.commands.subscribe",
    "server.engine.input_buffer",
    "server.engine.session_input",
    "server.engine.session",
    "server.engine.scheduler",
    "server.expressions.filter_cache",
    "server.expressions.filter_form",
    "server.expressions.filter_structure",
    "server.expressions.printer",
    "server.queues.core.acknowledgement",
    "server.queues.core.bookmark_index",
    "server.queues.core.bulk_ack",
    "server.queues.core.counts",
    "server.queues.core.dispatch",
    "server.queues.core.early_acks",
    "server.queues.core.key_order",
    "server.queues.core.leases",
    "server.queues.core.message_state",
    "server.queues.core.message_table",
    "server.queues.core.order",
    "server.queues.core.queue",
    "server.queues.core.sources",
    "server.queues.core.timer_buckets",
    "server.queues.topic.acknowledgement",
    "server.queues.topic.delivery",
    "server.queues.topic.delivery_batch",
    "server.queues.topic.delivery_scheduler",
    "server.queues.topic.depth_refill",
    "server.queues.topic.enqueue",
    "server.queues.topic.message_batch",
    "server.queues.topic.message_cache",
    "server.queues.topic.queue_journal",
    "server.queues.topic.held_back_consumers",
    "server.queues.topic.queue_topic",
    "server.storage.journal.write.commit_queue",
    "server.storage.journal.write.blocks",
    "server.storage.journal.write.writer",
    "server.storage.sow.batch_changes",
    "server.storage.sow.file_store",
    "server.storage.sow.indexes.hash_index",
    "server.storage.sow.indexes.memo_index",
    "server.storage.sow.memory_store",
    "server.storage.sow.slab.slab_file",
    "server.storage.sow.slab.slab_log",
    "server.storage.sow.record_batch",
    "server.storage.sow.record_table",
    "server.storage.sow.row_topics",
    "server.storage.sow.topic_records",
    "server.topics.subscriptions.subscriber_set",
    "server.topics.subscriptions.delivery.delivery",
    "server.topics.subscriptions.matching.field_index",
    "server.topics.subscriptions.matching.filter_costs",
    "server.topics.subscriptions.matching.filter_layout",
    "server.topics.subscriptions.matching.filter_set",
    "server.topics.subscriptions.delivery.message_batch",
    "server.topics.subscriptions.delivery.outbox",
    "server.topics.subscriptions.delivery.presentation",
    "server.topics.subscriptions.record_fanout",
    "server.topics.subscriptions.delivery.record_delivery",
    "server.topics.subscriptions.matching.vectorized",
    "server.topics.subscriptions.limits.slow_clients",
    "server.topics.subscriptions.matching.equality_lookup",
    "server.topics.interleaved_delivery",
    "server.topics.interleaved_publishes",
    "server.topics.replicated.batch",
    "server.topics.journaled_topic",
    "server.topics.replicated.records",
    "server.topics.sow_topic",
    "server.topics.table_batch",
    "server.topics.topic_table",
    "server.topics.topic",
    "server.topics.topic_journal",
)
"""The modules of the message path."""

LIBRARY: Final = "message_path"
"""The name of the compiled library."""
_HOME: Final = "amperage"
_PACKAGES: Final = (_HOME, "server")
_DIGEST: Final = f"{LIBRARY}.digest"


class SourceFinder(MetaPathFinder):
    """Finds the source of a module, even if a compiled form is in the same directory."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - part of the finder interface
    ) -> ModuleSpec | None:
        """Find a source; return None without one. See `importlib.abc.MetaPathFinder`."""
        if fullname.partition(".")[0] not in _PACKAGES:
            return None
        for directory in path or ():
            found = FileFinder(directory, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(fullname)
            if found is not None and found.loader is not None:
                return found
        return None


def choose(root: Path) -> None:
    """Select the form to run. Call this before any of the modules is imported.

    Args:
        root: the parent directory of the packages.
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
    """Return the reason not to run the compiled form of a checkout; "" if there is none.

    An installation outside a checkout does not change, and is not checked.
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
    """Return whether the sources differ from the compiled ones.

    Content is compared only if a source is newer than the library, by digest: switching branches
    back and forth changes times, but not content.
    """
    made = library.stat().st_mtime
    if all(source.stat().st_mtime <= made for source in sources(root)):
        return False
    digest = root / _HOME / _DIGEST
    return not digest.exists() or digest.read_text() != digest_of(root)


def note_digest(root: Path, digest: str) -> None:
    """Record the digest of the compiled sources (`digest_of`), for `compiled_trouble`."""
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
    """Yield the source files to compile."""
    return (root.joinpath(*name.split(".")).with_suffix(".py") for name in COMPILED)


def forget_compiled(root: Path) -> None:
    """Remove the compiled form from a checkout, also of modules that are no longer compiled."""
    for package in _PACKAGES:
        for compiled in (root / package).rglob(f"*{EXTENSION_SUFFIXES[0]}"):
            name = compiled.name.removesuffix(EXTENSION_SUFFIXES[0])
            if name == f"{LIBRARY}__mypyc" or compiled.with_name(f"{name}.py").exists():
                compiled.unlink()
    (root / _HOME / _DIGEST).unlink(missing_ok=True)
