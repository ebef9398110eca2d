"""Publishes the rows of a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from amperage.client import (
    Backoff,
    ClientError,
    CommandError,
    ConnectionEvent,
    ConnectionLostError,
    ConnectionState,
    HAClient,
    PublishStore,
    ServerChooser,
    StoredMessage,
    TimedOutError,
)
from pipeline.amps.connection import convert_client_errors
from pipeline.amps.options import AmpsOptions
from pipeline.amps.resumption import (
    ContentResumption,
    PositionResumption,
    PublishedMessages,
    Resumption,
)
from pipeline.amps.sink import LOGON_OPTIONS, TaskIdentity, TaskSink
from pipeline.bodies import OutgoingMessages

_MAX_UNACKNOWLEDGED_BYTES: Final = 16 << 20
"""Bytes that may be unacknowledged, to be sent again if the connection is lost."""


class RowStore(PublishStore):
    """Numbers rows, and keeps them until they are persisted.

    The sequence number in the first logon acknowledgement shows how far an earlier attempt of the
    task got; numbers begin after that. The one of later logons may come from another attempt that
    runs at the same time. Then the numbers stay those of the rows, and the server drops duplicates.

    Args:
        before_first: the number before that of the task's first row.
    """

    def __init__(self, before_first: int) -> None:
        super().__init__(_MAX_UNACKNOWLEDGED_BYTES)
        self._has_logged_on = False
        super().logged_on(before_first, before_first)

    def logged_on(self, sequence: int, _highest: int) -> None:
        """See `PublishStore.logged_on`; messages that may be lost are sent again."""
        if self._has_logged_on:
            self.persisted(sequence)
        else:
            self._has_logged_on = True
            super().logged_on(sequence, sequence)


class RowPublisher(TaskSink):
    """Publishes rows, and stays connected while the server restarts.

    Args:
        options: the server.
        identity: the client name and sequence numbers.

    Raises:
        PipelineError: the server cannot be reached.
    """

    def __init__(self, options: AmpsOptions, identity: TaskIdentity) -> None:
        super().__init__(options, identity)
        store = RowStore(identity.base_sequence)
        self._disconnect_error: ClientError | None = None
        """The reason for the current lack of a connection."""
        with self._explain_errors():
            self._client = HAClient(
                ServerChooser(options.servers, "in_order"),
                identity.name,
                backoff=Backoff(longest=1.0, seconds=options.timeout),
                publish_store=store,
                on_refused=self._on_refused,
                on_state=self._on_state,
                timeout=options.timeout,
                authenticator=options.login.authenticator(),
                ssl_context=options.login.ssl_context(),
                logon_options={"options": LOGON_OPTIONS},
            )
            self._client.connect()
        self._sent_count = identity.count_sent(store.last_sequence)
        self._resumption: Resumption | None = None

    def send(self, outgoing: OutgoingMessages) -> None:
        """See `TaskSink.send`."""
        with self._explain_errors():
            if self._resumption is None:
                self._resumption = self._make_resumption(outgoing)
            places = self._resumption.unsent_indexes(outgoing)
            if not places:
                return
            bodies = [outgoing.bodies[place] for place in places]
            headers = {
                name: [values[place] for place in places]
                for name, values in outgoing.headers.items()
            }
            topics = headers.pop("topic", None)
            if topics is None:
                topics = [self._options.topic or ""] * len(bodies)
            self._check_topics(self._client, set(topics))
            delta = self._options.command == "delta_publish"
            self._client.publish_columns(topics, bodies, headers, delta=delta)

    def finish(self) -> None:
        """See `TaskSink.finish`."""
        with self._explain_errors():
            self._client.flush()

    def close(self) -> None:
        """See `TaskSink.close`."""
        self._client.close()

    def _make_resumption(self, first: OutgoingMessages) -> Resumption:
        """Return the method to detect rows that an earlier attempt has published.

        The log has whole messages instead of deltas, so that deltas cannot be compared.
        """
        options, count = self._options, self._sent_count
        if not count or options.order != "checked" or options.command != "publish":
            return PositionResumption(count)
        return ContentResumption(PublishedMessages(options, self._identity, count, first.headers))

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Name the option in an error, and the cause: a timeout may be due to a lost connection."""
        with convert_client_errors(self._options):
            try:
                yield
            except TimedOutError as error:
                if self._disconnect_error is None:
                    raise
                raise ConnectionLostError(f"{self._disconnect_error}; {error}") from None

    def _on_state(self, event: ConnectionEvent) -> None:
        if event.state is ConnectionState.DISCONNECTED:
            self._disconnect_error = event.error
        elif event.state is ConnectionState.RECOVERED:
            self._disconnect_error = None

    def _on_refused(self, message: StoredMessage, error: CommandError) -> None:
        topic = str(msgspec.json.decode(message.header)["t"])
        self._record_refusal(topic, message.body, error)
