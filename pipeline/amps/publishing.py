"""Publishes the rows of a task."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

import msgspec

from client import Backoff, CommandError, HAClient, PublishStore, StoredMessage
from pipeline.amps.connection import blaming
from pipeline.amps.options import AmpsOptions
from pipeline.amps.sink import LOGON_OPTIONS, Identity, Sink
from pipeline.bodies import Outgoing

_UNACKNOWLEDGED: Final = 16 << 20
"""Bytes that may be on their way, to be sent again if the connection is lost."""


class RowStore(PublishStore):
    """Gives rows their numbers, and keeps them until they are persisted.

    The first logon says how far an earlier try of the task got; numbers begin behind that. What
    later logons say may be the work of another try that runs at the same time. Then the numbers
    stay those of the rows, and the server drops what it has.

    Args:
        before_first: the number before that of the task's first row.
    """

    def __init__(self, before_first: int) -> None:
        super().__init__(_UNACKNOWLEDGED)
        self._has_begun = False
        super().logged_on(before_first)

    def logged_on(self, sequence: int) -> None:
        """See `PublishStore.logged_on`."""
        if self._has_begun:
            self.persisted(sequence)
        else:
            self._has_begun = True
            super().logged_on(sequence)


class Publisher(Sink):
    """Publishes, and stays connected while the server restarts.

    Args:
        options: where to.
        identity: as whom.

    Raises:
        PipelineError: the server cannot be reached.
    """

    def __init__(self, options: AmpsOptions, identity: Identity) -> None:
        super().__init__(options, identity)
        store = RowStore(identity.before_first)
        self._client = HAClient(
            [options.server],
            identity.name,
            backoff=Backoff(longest=1.0, seconds=options.timeout),
            publish_store=store,
            on_refused=self._on_refused,
            timeout=options.timeout,
            logon_options={"options": LOGON_OPTIONS},
        )
        with blaming(options):
            self._client.connect()
        self._to_skip = identity.already_sent(store.last_sequence)

    def send(self, outgoing: Outgoing) -> None:
        """See `Sink.send`."""
        skipped = min(self._to_skip, len(outgoing.bodies))
        self._to_skip -= skipped
        bodies = outgoing.bodies[skipped:]
        headers = {name: values[skipped:] for name, values in outgoing.headers.items()}
        with blaming(self._options):
            topics = headers.pop("topic", None)
            if topics is None:
                topics = [self._options.topic or ""] * len(bodies)
            self._check_topics(self._client, set(topics))
            self._publish(topics, bodies, headers)

    def finish(self) -> None:
        """See `Sink.finish`."""
        with blaming(self._options):
            self._client.flush()

    def close(self) -> None:
        """See `Sink.close`."""
        self._client.close()

    def _publish(
        self, topics: list[str], bodies: list[bytes], headers: dict[str, list[Any]]
    ) -> None:
        delta = self._options.command == "delta_publish"
        if headers:
            for row, (topic, body) in enumerate(zip(topics, bodies, strict=True)):
                given = {name: values[row] for name, values in headers.items()}
                self._client.publish(topic, body, delta=delta, **given)
            return
        start = 0
        for topic, group in groupby(topics):
            end = start + len(list(group))
            self._client.publish_all(topic, bodies[start:end], delta=delta)
            start = end

    def _on_refused(self, message: StoredMessage, error: CommandError) -> None:
        topic = str(msgspec.json.decode(message.header)["t"])
        self._refused(topic, message.body, error)
