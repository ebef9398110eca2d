"""Sends the entries of one journal to a server again, each once.

The number of an entry in its journal is the sequence number of its message, and the client names
are the same in each run of the replay, so that the server drops duplicates. Deletions are numbered
as well: one sent again without a number would remove a record whose later publishes are then
dropped. Deletions have a connection and a client name of their own. A deletion waits for the
publishes before it, and later publishes wait for the deletion.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any, Final, Self

import msgspec

from amperage.client import (
    Backoff,
    Client,
    CommandError,
    ConnectionLostError,
    DuplicateMessageError,
    HAClient,
    PublishStore,
    StoredMessage,
)
from amperage.client.uri import ServerUri
from pipeline.amps.sink import LOGON_OPTIONS

_TIMEOUT_S: Final = 30.0
"""Seconds to wait for an answer, and for a server that has gone away to come back."""


class _EntryStore(PublishStore):
    """Stores messages under the numbers of their entries."""

    def number_next(self, txid: int) -> None:
        """Set the entry number of the next message."""
        self._last_sequence = txid - 1


class ReplaySender(ExitStack):
    """Sends entries, and stays connected while the server restarts.

    Args:
        uri: the server, with the message type of the entries.
        name: the client name.

    Attributes:
        refused_count: the number of entries refused by the server.
        first_refusal: the first of them, with the reason.

    Raises:
        ClientError: the server cannot be reached.
    """

    def __init__(self, uri: ServerUri, name: str) -> None:
        super().__init__()
        self.refused_count = 0
        self.first_refusal = ""
        self._uri = uri
        self._deleter = Client(f"{name}-deletions", timeout=_TIMEOUT_S)
        self._store = _EntryStore()
        self._publisher = HAClient(
            [uri],
            name,
            backoff=Backoff(longest=1.0, seconds=_TIMEOUT_S),
            publish_store=self._store,
            on_refused=self._on_refused,
            timeout=_TIMEOUT_S,
            logon_options={"options": LOGON_OPTIONS},
        )

    def __enter__(self) -> Self:
        self.enter_context(self._deleter)
        self._log_on()  # first, because it fails at once if there is no server
        self.enter_context(self._publisher)
        self._publisher.connect()
        return self

    def send(self, entry: Any) -> None:
        """Send an entry: publish its message, or delete its records.

        Args:
            entry: a row with the columns body, topic, command, txid, sow_key, correlation_id and
                expiration.
        """
        if entry.command == "sow_delete":
            self.flush()
            self._delete(entry)
            return
        self._store.number_next(entry.txid)
        self._publisher.publish(
            entry.topic,
            bytes(entry.body),
            sow_key=entry.sow_key,  # ignored by topics with a Key
            correlation_id=entry.correlation_id,
            expiration=entry.expiration,
        )

    def flush(self) -> None:
        """Wait until everything is on stable storage."""
        self._publisher.flush()

    def _delete(self, entry: Any) -> None:
        keys = msgspec.json.decode(bytes(entry.body), type=list[str])
        try:
            self._number_deletion(entry.topic, keys, entry.txid)
        except ConnectionLostError:  # the server is back: the publisher's flush has just succeeded
            self._log_on()
            self._number_deletion(entry.topic, keys, entry.txid)
        except CommandError as problem:
            self._record_refusal(f"{problem}; deletion of {', '.join(keys):.200}")

    def _number_deletion(self, topic: str, keys: list[str], txid: int) -> None:
        with suppress(DuplicateMessageError):  # it was executed before the replay was interrupted
            self._deleter.sow_delete(topic, sow_keys=keys, sequence=txid, persisted=True)

    def _log_on(self) -> None:
        self._deleter.connect(self._uri)
        self._deleter.logon(options=LOGON_OPTIONS)

    def _on_refused(self, message: StoredMessage, error: CommandError) -> None:
        topic = msgspec.json.decode(message.header)["t"]
        self._record_refusal(f"{error}; message to {topic}: {message.body[:200]!r}")

    def _record_refusal(self, text: str) -> None:
        self.refused_count += 1
        self.first_refusal = self.first_refusal or text
