"""Deletes records for the rows of a task: by their SOW keys, or by one message each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from amperage.client import CommandError, DuplicateMessageError
from pipeline.amps.connection import convert_client_errors, log_on, new_client
from pipeline.amps.options import AmpsOptions
from pipeline.amps.sink import LOGON_OPTIONS, TaskIdentity, TaskSink
from pipeline.bodies import OutgoingMessages
from pipeline.errors import SchemaError

_MAX_COMMAND_KEYS: Final = 500


class _Deletion(NamedTuple):
    """One sow_delete command.

    Attributes:
        topic: the topic.
        keys: the SOW keys of the records; None to delete by the body.
        body: a message that would update the record.
        sequence: the number of its last row.
    """

    topic: str
    keys: list[str] | None
    body: bytes
    sequence: int


class Deleter(TaskSink):
    """Deletes records, by several keys per command where rows have keys.

    Acknowledgements of persisted deletions arrive in the order of the commands, so that only the
    last one is waited for. To know which is the last, each command is held until there is another
    one.

    Args:
        options: the server.
        identity: the client name and sequence numbers.

    Raises:
        PipelineError: the server cannot be reached.
    """

    def __init__(self, options: AmpsOptions, identity: TaskIdentity) -> None:
        super().__init__(options, identity)
        with convert_client_errors(options):
            self._client = new_client(options, identity.name)
            answer = log_on(self._client, options, patient=True, logon_options=LOGON_OPTIONS)
        self._rows_to_skip = identity.count_sent(answer.sequence or 0)
        self._sequence = identity.base_sequence
        self._held_deletion: _Deletion | None = None

    def send(self, outgoing: OutgoingMessages) -> None:
        """See `TaskSink.send`."""
        rows = len(outgoing.bodies)
        skipped = min(self._rows_to_skip, rows)
        self._rows_to_skip -= skipped
        topics = outgoing.headers.get("topic") or [self._options.topic or ""] * rows
        self._sequence += skipped
        with convert_client_errors(self._options):
            self._check_topics(self._client, set(topics[skipped:]))
            start = skipped
            for topic, group in groupby(topics[skipped:]):
                end = start + len(list(group))
                for deletion in self._deletions(topic, outgoing, start, end):
                    self._send_held(persisted=False)
                    self._held_deletion = deletion
                start = end

    def finish(self) -> None:
        """See `TaskSink.finish`."""
        with convert_client_errors(self._options):
            self._send_held(persisted=True)

    def close(self) -> None:
        """See `TaskSink.close`."""
        self._client.close()

    def _deletions(
        self, topic: str, outgoing: OutgoingMessages, start: int, end: int
    ) -> Iterator[_Deletion]:
        """Yield the commands for some rows, and advance the sequence number."""
        keys = outgoing.headers.get("sow_key")
        size = 1 if keys is None else _MAX_COMMAND_KEYS
        for first in range(start, end, size):
            last = min(first + size, end)
            self._sequence += last - first
            batch_keys = None if keys is None else keys[first:last]
            if batch_keys is not None and None in batch_keys:
                raise SchemaError("schema: column sow_key is NULL in a row; filter such rows out")
            yield _Deletion(topic, batch_keys, outgoing.bodies[first], self._sequence)

    def _send_held(self, *, persisted: bool) -> None:
        """Send the held command."""
        held_deletion, self._held_deletion = self._held_deletion, None
        if held_deletion is None:
            return
        try:
            self._client.sow_delete(
                held_deletion.topic,
                sow_keys=held_deletion.keys,
                body=held_deletion.body if held_deletion.keys is None else None,
                sequence=held_deletion.sequence,
                persisted=persisted,
            )
        except DuplicateMessageError:
            return  # another attempt of this task has got further meanwhile
        except CommandError as error:
            self._record_refusal(
                held_deletion.topic,
                ",".join(held_deletion.keys or ()).encode() or held_deletion.body,
                error,
            )
