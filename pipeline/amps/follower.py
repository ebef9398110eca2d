"""Follows the transaction log on the driver, to tell what the next micro-batch consists of.

One bookmark subscription stays open as long as the stream runs. Asking for the latest offset takes
what has arrived, at no more cost than reading a socket. The server sends no faster than it is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from client import NOW, ClientError, Message, MessageStream, TimedOutError
from pipeline.amps.connection import AWAY, explained, require_log, session
from pipeline.amps.options import AmpsOptions

_PAUSE: Final = 0.2
"""Seconds between two attempts to reach a server that is away."""
_WAIT: Final = 1.0
"""Seconds to wait for a replay that goes on, before Spark is told that there is nothing yet."""


class Follower:
    """A place in the transaction log that moves on.

    Args:
        options: server, topic and filter.
        command_options: the options field of the subscription.
    """

    def __init__(self, options: AmpsOptions, command_options: str | None) -> None:
        self._options = options
        self._command_options = command_options
        self._ends = False
        self._open = ExitStack()
        self._stream: MessageStream | None = None
        self._place: str | None = None
        self._left: list[Message] = []
        self._is_complete = False
        self._away_since: float | None = None

    def stop_at_end(self) -> None:
        """Go no further than the log goes when it is subscribed to next."""
        self.close()
        self._ends = True

    def close(self) -> None:
        """Give up the subscription."""
        self._stream, self._place, self._left = None, None, []
        self._open.close()

    def take(self, place: str, most: int | None) -> Iterator[list[Message]]:
        """What has arrived behind a bookmark.

        Args:
            place: the bookmark.
            most: at most so many messages; None for all.

        Returns:
            The messages; nothing while the server is away, unless the log is read to its end.

        Raises:
            PipelineError: the server refuses, or has been away for too long.
        """
        given = 0
        while most is None or given < most:
            try:
                messages = self._next(place, None if most is None else most - given)
                self._away_since = None
            except AWAY as error:
                self._lost(error)
                if self._ends:
                    continue
                return
            except ClientError as error:
                raise explained(self._options, error, place) from None
            if not messages:
                return
            given += len(messages)
            place = self._place = messages[-1].bookmark or place
            yield messages

    def _next(self, place: str, most: int | None) -> list[Message]:
        if self._stream is None or self._place != place:
            self._stream = self._subscribe(place)
        while not self._left:
            try:
                arrived = self._stream.batch(0.0 if self._is_complete else _WAIT)
            except TimedOutError:
                if self._ends and not self._is_complete:
                    continue
                return []
            self._left = [message for message in arrived if message.command != "ack"]
            if len(self._left) < len(arrived):
                self._is_complete = True
        taken = self._left[:most]
        self._left = self._left[len(taken) :]
        return taken

    def _subscribe(self, place: str) -> MessageStream:
        self.close()
        options = self._options
        client = self._open.enter_context(session(options, "follow"))
        require_log(client, options.read_topic)
        self._place, self._is_complete = place, False
        return client.subscribe(
            options.read_topic,
            filter=options.filter,
            options=self._command_options,
            bookmark=_up_to_now(place) if self._ends else place,
            acks=("completed",),
        )

    def _lost(self, error: ClientError) -> None:
        """Wait a little before the next attempt; or give up."""
        self.close()
        now = time.monotonic()
        self._away_since = self._away_since or now
        if now - self._away_since > self._options.timeout:
            raise explained(self._options, error) from None
        time.sleep(_PAUSE)


def _up_to_now(place: str) -> str:
    """What comes from a place on, up to what there is: a mere moment includes itself."""
    return f"{'(' if '|' in place else '['}{place}:{NOW}]"
