"""The configuration of an instance's transaction log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The configuration of the transaction log.

    Source: AMPS User Guide, Configuring a Transaction Log; Tuning.

    Attributes:
        instance: the instance's Name.
        directory: JournalDirectory; made if it does not exist.
        archive: JournalArchiveDirectory.
        file_size: JournalSize in bytes; rounded up to whole mebibytes.
        preallocated: PreallocatedJournalFiles.
        flush_interval: FlushInterval in nanoseconds.
        with_topic_index: topic indexes are made.
        client_expiration: InactiveClientAckExpiration in nanoseconds; None: publishers are kept.
        cache_limit: CompressedJournalCacheMemoryLimit in bytes; None: a tenth of the memory.
    """

    instance: str
    directory: Path
    archive: Path | None = None
    file_size: int = 1 << 30
    preallocated: int = 2
    flush_interval: int = 100_000_000
    with_topic_index: bool = False
    client_expiration: int | None = None
    cache_limit: int | None = None
