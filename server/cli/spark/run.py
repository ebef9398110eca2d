"""The commands of spark, on a connected client."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from itertools import chain, groupby
from typing import BinaryIO, Final

from amperage.client import (
    Client,
    ClientError,
    CommandError,
    ConnectionLostError,
    HAClient,
    InvalidTopicError,
    Message,
    MessageStream,
    NotEntitledError,
    StoredMessage,
)
from server.cli.spark.connection import connect, explain, server_uris
from server.cli.spark.formats import MessageRenderer, as_json, compile_format, has_tag
from server.cli.spark.options import SparkSettings, UsageError
from server.cli.spark.sources import paced, read_messages, warn_of_invalid_json
from server.log.template import printable

_CONTENT: Final = frozenset({"publish", "sow", "oof"})
_FLUSH_TIMEOUT: Final = 60.0
"""Timeout in seconds for the server to process everything sent to it."""
_ACKS_TIMEOUT_S: Final = 5.0
"""Timeout in seconds for the server to store acknowledgements when the command ends."""
_MAX_REFUSALS_SHOWN: Final = 3


class RefusedMessagesError(Exception):
    """The server refused messages or acknowledgements; the text has their number and reasons."""


class _Refusals:
    """Collects the messages that the server refused; the client's thread adds them."""

    def __init__(self) -> None:
        self.count = 0
        self._reasons: list[str] = []

    def add(self, message: StoredMessage, error: CommandError) -> None:
        """Count a message, and keep the reason if it is one of the first."""
        if self.count < _MAX_REFUSALS_SHOWN:
            self._reasons.append(f"refused: {explain(error)}: {printable(message.body[:80])}")
        self.count += 1

    def raise_any(self) -> None:
        """Raise an error if messages were refused.

        Raises:
            RefusedMessagesError: the server refused at least one.
        """
        if self.count:
            noun = "message was" if self.count == 1 else "messages were"
            raise RefusedMessagesError("\n".join([*self._reasons, f"{self.count} {noun} refused"]))


def ping(settings: SparkSettings, output: BinaryIO) -> None:
    """Connect, log on and report success."""
    with closing(connect(settings, settings.server)) as client:
        uris = server_uris(settings, settings.server)
        where = client.server if isinstance(client, HAClient) else uris[0]
        _print_line(output, f"Successfully connected to {where}")


def publish(settings: SparkSettings, output: BinaryIO) -> None:
    """Publish the messages of a file or of standard input.

    Every message is acknowledged. The command waits for the acknowledgement of the first one, so
    that an invalid topic is reported at once.

    Raises:
        RefusedMessagesError: the server refused some of them.
    """
    count = 0
    topic, delta = settings.topic, settings.delta
    refusals = _Refusals()
    batches = read_messages(settings.file, settings.delimiter)
    if _sends_json(settings):
        batches = warn_of_invalid_json(batches, _warn)
    if settings.rate is not None:
        batches = paced(batches, settings.rate)
    with closing(connect(settings, settings.server, refusals.add)) as client:
        started = time.perf_counter()
        for batch in batches:
            if batch and not count:
                _publish_first(client, settings, batch[0])
                client.publish_all(topic, batch[1:], delta=delta)
            else:
                client.publish_all(topic, batch, delta=delta)
            count += len(batch)
        client.flush(timeout=_FLUSH_TIMEOUT)
        count -= refusals.count
        _print_line(output, f"total messages published: {count} ({_rate(count, started)}/s)")
    refusals.raise_any()


def _sends_json(settings: SparkSettings) -> bool:
    return all(uri.message_type == "json" for uri in server_uris(settings, settings.server))


def _warn(text: str) -> None:
    print(f"spark publish: warning: {text}", file=sys.stderr)


def _publish_first(client: Client | HAClient, settings: SparkSettings, body: bytes) -> None:
    try:
        client.confirmed_publish(settings.topic, body, "processed", delta=settings.delta)
    except (InvalidTopicError, NotEntitledError):
        raise  # all others would be refused, too
    except CommandError:
        return  # counted like any other


def subscribe(settings: SparkSettings, output: BinaryIO) -> None:
    """Print messages as they are published, until interrupted."""
    backlog_options = [] if settings.backlog is None else [f"max_backlog={settings.backlog}"]
    with _Printer(settings, output) as printer:
        stream = printer.client.subscribe(
            settings.topic,
            delta=settings.delta,
            filter=settings.filter,
            options=",".join(backlog_options + _header_options(settings)) or None,
        )
        printer.print_all(stream)


def sow(settings: SparkSettings, output: BinaryIO) -> None:
    """Print the records of a SOW topic."""
    with _Printer(settings, output) as printer:
        started = time.perf_counter()
        stream = printer.client.sow(
            settings.topic,
            filter=settings.filter,
            options=",".join(_header_options(settings)) or None,
            order_by=settings.orderby,
            batch_size=settings.batchsize,
            top_n=settings.topn,
        )
        count = printer.print_all(stream)
        summary = f"Total messages received: {count} ({_rate(count, started)}/s)"
        print(summary, file=sys.stderr)


def sow_and_subscribe(settings: SparkSettings, output: BinaryIO) -> None:
    """Print the records of a SOW topic, then messages as they are published."""
    with _Printer(settings, output) as printer:
        stream = printer.client.sow_and_subscribe(
            settings.topic,
            delta=settings.delta,
            filter=settings.filter,
            options=",".join(_header_options(settings)) or None,
            order_by=settings.orderby,
            batch_size=settings.batchsize,
            top_n=settings.topn,
        )
        printer.print_all(stream)


def sow_delete(settings: SparkSettings, output: BinaryIO) -> None:
    """Delete the records that match a filter, or that messages would update."""
    if settings.filter is not None and settings.file is not None:
        raise UsageError("-filter and -file exclude each other: give one of them")
    with closing(connect(settings, settings.server)) as client:
        started = time.perf_counter()
        if settings.filter is not None:
            deleted = client.sow_delete(settings.topic, filter=settings.filter)
        else:
            bodies = chain.from_iterable(read_messages(settings.file, settings.delimiter))
            deleted = sum(client.sow_delete(settings.topic, body=body) for body in bodies)
        milliseconds = (time.perf_counter() - started) * 1000
        _print_line(output, f"Deleted {deleted} records in {milliseconds:.0f}ms.")


def redrive(settings: SparkSettings, output: BinaryIO) -> None:
    """Return dead letters to the queues that they came from."""
    with closing(connect(settings, settings.server)) as client:
        started = time.perf_counter()
        filter_ = settings.filter or "1=1"
        count = client.sow_delete(settings.topic, filter=filter_, options="redrive")
        milliseconds = (time.perf_counter() - started) * 1000
        _print_line(output, f"Redrove {count} messages in {milliseconds:.0f}ms.")


RUN: Final[Mapping[str, Callable[[SparkSettings, BinaryIO], None]]] = {
    "ping": ping,
    "publish": publish,
    "redrive": redrive,
    "sow": sow,
    "sow_and_subscribe": sow_and_subscribe,
    "sow_delete": sow_delete,
    "subscribe": subscribe,
}


class _Printer:
    """Prints the messages of a stream, copies them and acknowledges them, as the options specify.

    Attributes:
        client: the connection to the server.
    """

    def __init__(self, settings: SparkSettings, output: BinaryIO) -> None:
        self._settings = settings
        self._output = output
        self._render = _render(settings)
        self._refusals = _Refusals()
        self._stack = ExitStack()

    def __enter__(self) -> _Printer:
        with ExitStack() as stack:
            settings = self._settings
            self.client = stack.enter_context(closing(connect(settings, settings.server)))
            self._copy: Client | HAClient | None = None
            if settings.copy is not None:
                copy = connect(settings, settings.copy, self._refusals.add)
                self._copy = stack.enter_context(closing(copy))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        with self._stack, suppress(ClientError):
            if self._settings.ack:
                self.client.flush_acks(timeout=_ACKS_TIMEOUT_S)

    def print_all(self, stream: MessageStream) -> int:
        """Print a stream to its end, with one write per batch that arrived together.

        Returns:
            The number of messages.
        """
        count = 0
        render, output = self._render, self._output
        while arrived := stream.batch():
            batch = [message for message in arrived if message.command in _CONTENT]
            output.write(b"".join([render(message) + b"\n" for message in batch]))
            output.flush()
            count += len(batch)
            if self._copy is not None:
                _publish_copies(self._copy, batch)
            if self._settings.ack:
                _acknowledge(self.client, batch)
        if self._copy is not None:
            self._copy.flush(timeout=_FLUSH_TIMEOUT)
            self._refusals.raise_any()
        return count


def _publish_copies(copy: Client | HAClient, batch: list[Message]) -> None:
    for topic, messages in groupby(batch, key=lambda message: message.topic):
        copy.publish_all(topic, [message.body for message in messages])


def _acknowledge(client: Client | HAClient, batch: list[Message]) -> None:
    """Acknowledge messages of queues, and wait for the answers.

    Raises:
        RefusedMessagesError: the server refused it, so that it delivers the messages again.
    """
    leased = [message for message in batch if message.is_leased]
    for topic, messages in groupby(leased, key=lambda message: message.topic):
        bookmarks = [
            leased_message.bookmark
            for leased_message in messages
            if leased_message.bookmark is not None
        ]
        try:
            client.confirmed_acknowledge(topic, bookmarks)
        except ConnectionLostError:
            client.acknowledge(topic, bookmarks)  # an HAClient sends it in its next session
        except CommandError as error:
            noun = "message" if len(bookmarks) == 1 else "messages"
            verb = "was" if len(bookmarks) == 1 else "were"
            raise RefusedMessagesError(
                f"{len(bookmarks)} {noun} of queue {topic!r} {verb} not acknowledged:"
                f" {explain(error)}"
            ) from None


def _header_options(settings: SparkSettings) -> list[str]:
    """Return the options for header fields that the server sends on request only."""
    return ["timestamp"] if settings.json or has_tag(settings.format, "timestamp") else []


def _render(settings: SparkSettings) -> MessageRenderer:
    if settings.json and settings.format is not None:
        raise UsageError("-json and -format exclude each other: give one of them")
    return as_json if settings.json else compile_format(settings.format)


def _rate(count: int, started: float) -> str:
    return f"{count / max(time.perf_counter() - started, 1e-9):.2f}"


def _print_line(output: BinaryIO, line: str) -> None:
    output.write(f"{line}\n".encode("utf-8", "surrogateescape"))
    output.flush()
