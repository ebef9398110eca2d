"""A publish store that survives its process.

The messages are kept in memory, and also in the file, from which a later run restores them. A
message is written to the file before it is sent. Acknowledgements are less important: if one is
lost, its message is sent again, and the server drops the duplicate.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from struct import Struct
from typing import Final, Self

from amperage.client.arguments import client_name
from amperage.client.errors import StoreError
from amperage.client.publish_store import (
    DEFAULT_CAPACITY,
    PublishStorage,
    PublishStore,
    StoredMessage,
    size_of,
)
from amperage.client.record_log import RecordLog, SyncPolicy

_MAGIC: Final = b"AMPRPUB1"
_MESSAGE: Final = Struct("<cQI")  # kind, number, length of the header
_NUMBER: Final = Struct("<cQ")  # kind, number
_ADDED, _PERSISTED, _REFUSED, _LAST = b"M", b"P", b"R", b"L"
_logger: Final = logging.getLogger("amperage.client")

_MIN_REWRITE_GROWTH: Final = 1 << 20
"""Bytes that a file may have, in addition to twice the stored messages, before it is rewritten."""


class FilePublishStore(PublishStore):
    """The messages of one client name, in a file.

    Args:
        path: the file; it is created if missing. Only one store at a time can open it.
        capacity: bytes of messages at which the store is full.
        sync: "never" to let the operating system write to the disk later: the messages survive a
            crash of the process. "always" to wait for the disk at each publish.

    The client needs the same name in every run, because the server identifies a message by the
    client name and the sequence number.

    Raises:
        StoreError: the file cannot be used; the text has the reason.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        capacity: int = DEFAULT_CAPACITY,
        sync: SyncPolicy = "never",
    ) -> None:
        super().__init__(capacity)
        self._uncommitted: list[StoredMessage] = []
        self._log = RecordLog(path, _MAGIC, sync)
        for record in self._log.take_records():
            self._replay_record(record)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def add(self, header_start: bytes, body: bytes) -> StoredMessage:
        """Store a message with the next number; `commit` writes it to the file."""
        message = super().add(header_start, body)
        self._uncommitted.append(message)
        return message

    def commit(self) -> None:
        """Write the messages added since the last `commit`.

        Raises:
            StoreError: the messages cannot be written; they are removed from the store.
        """
        added, self._uncommitted = self._uncommitted, []
        try:
            self._log.append(map(_added, added))
        except StoreError:
            for message in reversed(added):
                self._messages.remove(message)
                self._bytes -= size_of(message)
                self._last_sequence = message.sequence - 1
            raise

    def persisted(self, sequence: int) -> None:
        """Remove all messages up to a number: the server has persisted them."""
        if self.holds_up_to(sequence):
            super().persisted(sequence)
            self._write_outcome(_PERSISTED, sequence)

    def refused(self, sequence: int) -> StoredMessage | None:
        """Remove and return a message that the server refuses; None if it is not stored."""
        message = super().refused(sequence)
        if message is not None:
            self._write_outcome(_REFUSED, sequence)
        return message

    def logged_on(self, sequence: int, highest: int) -> None:
        """Process the numbers in the answer to a logon; see `PublishStore.logged_on`."""
        before = self.last_sequence
        super().logged_on(sequence, highest)
        if self.last_sequence != before:
            self._write_outcome(_LAST, self.last_sequence)

    def close(self) -> None:
        """Close the file. The next store that opens it restores the messages."""
        self._log.close()

    def _write_outcome(self, kind: bytes, sequence: int) -> None:
        """Write the outcome of a message. If the write fails, the message is sent again later.

        The server drops it as a duplicate.
        """
        try:
            if self._log.size > 2 * self._bytes + _MIN_REWRITE_GROWTH:
                self._log.rewrite(self._all_records())
            else:
                self._log.append([_NUMBER.pack(kind, sequence)])
        except StoreError as problem:
            _logger.warning("an acknowledgement is not noted: %s", problem)

    def _all_records(self) -> Iterator[bytes]:
        yield _NUMBER.pack(_LAST, self.last_sequence)
        yield from map(_added, self)

    def _replay_record(self, record: bytes) -> None:
        kind = record[:1]
        if kind == _ADDED:
            _, sequence, length = _MESSAGE.unpack_from(record)
            content = record[_MESSAGE.size :]
            message = StoredMessage(sequence, content[:length], content[length:])
            self._messages.append(message)
            self._bytes += size_of(message)
            self._last_sequence = max(self._last_sequence, sequence)
            return
        _, sequence = _NUMBER.unpack(record)
        if kind == _PERSISTED:
            super().persisted(sequence)
        elif kind == _REFUSED:
            super().refused(sequence)
        elif kind == _LAST:
            super().logged_on(0, sequence)


def check_client_name(name: str | None, store: PublishStorage | None) -> str:
    """Return the name of a client with a publish store, or a generated one if it is missing.

    Raises:
        TypeError: the name is not text.
        ValueError: the name is missing, and the store keeps messages for later runs.
    """
    if not name and isinstance(store, FilePublishStore):
        raise ValueError(
            "a FilePublishStore needs a client with a name, the same in every run: the server knows"
            " messages by name and number"
        )
    return client_name(name)


def _added(message: StoredMessage) -> bytes:
    head = _MESSAGE.pack(_ADDED, message.sequence, len(message.header))
    return head + message.header + message.body
