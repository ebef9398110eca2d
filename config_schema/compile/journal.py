"""The transaction log.

Source: AMPS User Guide, Configuring a Transaction Log.
"""

from typing import Final

from config_schema.compile.reader import COUNT, INTERVAL, SIZE, ElementReader
from config_schema.compile.scope import Scope
from config_schema.spec import JournaledTopicSpec, TopicRef, TransactionLogSpec
from config_schema.units import parse_size, quoted

MIN_JOURNAL_SIZE: Final = "10MB"


def compile_transaction_log(root: ElementReader, scope: Scope) -> TransactionLogSpec | None:
    """Compile the TransactionLog section and register the topics that it records."""
    reader = root.child("TransactionLog")
    if reader is None:
        return None
    directory = reader.required("JournalDirectory")
    archive = reader.text("JournalArchiveDirectory")
    if archive is not None and archive.rstrip("/") == directory.rstrip("/"):
        reader.warning(
            "is the JournalDirectory itself, so archiving moves nothing",
            "name a directory on other storage",
            tag="JournalArchiveDirectory",
        )
    for topic in reader.children("Topic"):
        scope.register_journaled(_topic(topic, scope))
    return TransactionLogSpec(
        journal_directory=directory,
        journal_archive_directory=archive,
        preallocated_journal_files=reader.quantity(
            "PreallocatedJournalFiles", COUNT, "2", minimum="1"
        ),
        journal_size=_journal_size(reader),
        topics=tuple(scope.journaled.values()),
        flush_interval=reader.quantity(
            "FlushInterval", INTERVAL, "100ms", minimum="1us", maximum="1000ms"
        ),
        o_direct=reader.flag("O_DIRECT", default=True),
        inactive_client_ack_expiration=reader.quantity("InactiveClientAckExpiration", INTERVAL),
        compressed_journal_cache_memory_limit=reader.quantity(
            "CompressedJournalCacheMemoryLimit", SIZE
        ),
        location=reader.location,
    )


def _journal_size(reader: ElementReader) -> int:
    size = reader.quantity("JournalSize", SIZE, "1GB")
    smallest = parse_size(MIN_JOURNAL_SIZE)
    if size < smallest:
        text = reader.text("JournalSize") or ""
        reader.warning(
            f"{quoted(text)} is below the least size, {MIN_JOURNAL_SIZE} is used instead",
            tag="JournalSize",
        )
    return max(size, smallest)


def _topic(reader: ElementReader, scope: Scope) -> JournaledTopicSpec:
    name = reader.required("Name")
    message_type = scope.message_type(reader)
    is_expression = scope.is_pattern(name)
    if is_expression:
        reader.pattern("Name")
    earlier = scope.journaled.get(TopicRef(name, message_type))
    if name and earlier is not None:
        reader.warning(
            f"topic {quoted(name)} of type {quoted(message_type)} is listed twice; "
            f"it is already at {earlier.location}",
            tag="Name",
        )
    return JournaledTopicSpec(name, is_expression, message_type, reader.location)
