"""`amps-pipeline replay`: journals, or an export of them, published to a server again.

Messages go in the order in which they were recorded, instance by instance, with the numbers of
their entries for sequence numbers and a client name that belongs to the state file. A replay that
is interrupted and goes on sends a few messages again, which the server takes for duplicates, if the
topic is in its transaction log.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from client import Client, ClientError, DuplicateMessageError
from pipeline.errors import PipelineError
from pipeline.jobs.files import State, read_state, store
from pipeline.jobs.sources import Source, add_source, source_of

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame

    from pipeline.jobs.run import Progress, Run

HELP: Final = "publish journals, or an export of them, to a server again"

_COLUMNS: Final = (
    "body",
    "topic",
    "command",
    "instance",
    "txid",
    "sow_key",
    "correlation_id",
    "expiration",
)
_TOGETHER: Final = 1000
"""Messages after which the server is asked whether it has them."""

_SLICE: Final = 0.05
"""Seconds: at a rate, so much is sent at a time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the job wants to know."""
    add_source(parser)
    parser.add_argument("server", help="URI of the server, such as tcp://localhost:9007/amps/json")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second at most")
    parser.add_argument("--bookmark", default="", help="bookmark or range to replay")
    parser.add_argument("--filter", default="", help="content filter")
    parser.add_argument("--state", type=Path, help="file to remember the progress in, to go on")


def run(options: argparse.Namespace, run: Run) -> None:
    """Do it.

    Raises:
        PipelineError: it cannot be done, or not completely.
    """
    source = source_of(options, bookmark=options.bookmark, filter=options.filter)
    state = _state(options)
    frame = _entries(source, state, run)
    total = frame.count()
    if run.is_dry:
        run.say(f"{total} entries to {options.server}")
        return
    progress = run.progress("replay", total)
    publisher = _Publisher(options, state, progress)
    try:
        with Client(f"amps-pipeline-{state.id}") as client:
            client.connect(options.server)
            client.logon()
            publisher.publish(client, frame)
    except ClientError as problem:
        raise PipelineError(
            f"{options.server}: after {progress.done} of {total} messages: {problem}"
        ) from problem
    finally:
        progress.end()
    run.say(f"{progress.done} entries replayed")


def _entries(source: Source, state: State, run: Run) -> DataFrame:
    """What is still to be sent, in order."""
    from pyspark.sql import functions as F

    frame = source.entries(run.spark(), *_COLUMNS)
    for instance, txid in state.reached.items():
        frame = frame.where((F.col("instance") != instance) | (F.col("txid") > txid))
    return frame.orderBy("instance", "txid") if source.is_export else frame


class _Publisher:
    """Publishes entries at a rate, and remembers how far it has got."""

    def __init__(self, options: argparse.Namespace, state: State, progress: Progress) -> None:
        self._path: Path | None = options.state
        self._rate: float = options.rate
        self._state = state
        self._progress = progress
        self._began = time.monotonic()

    def publish(self, client: Client, frame: DataFrame) -> None:
        waiting: list[Any] = []
        step = min(_TOGETHER, max(int(self._rate * _SLICE), 1)) if self._rate else _TOGETHER
        for row in frame.toLocalIterator(prefetchPartitions=True):
            waiting.append(row)
            if len(waiting) >= step:
                self._send(client, waiting)
                waiting = []
        if waiting:
            self._send(client, waiting)

    def _send(self, client: Client, rows: list[Any]) -> None:
        if self._rate:
            due = self._began + self._progress.done / self._rate
            time.sleep(max(due - time.monotonic(), 0))
        for row in rows[:-1]:
            _repeat(client, row, is_last=False)
        _repeat(client, rows[-1], is_last=True)
        self._state.reached[rows[-1].instance] = rows[-1].txid
        if self._path is not None:
            store(self._path, msgspec.json.encode(self._state))
        self._progress.add(len(rows))


def _repeat(client: Client, row: Any, *, is_last: bool) -> None:
    """Do again what a client once did."""
    body = bytes(row.body)
    if row.command == "sow_delete":
        client.sow_delete(row.topic, sow_keys=msgspec.json.decode(body, type=list[str]))
        return
    publish = client.confirmed_publish if is_last else client.publish
    with contextlib.suppress(DuplicateMessageError):  # it came before the replay was interrupted
        publish(
            row.topic,
            body,
            sequence=row.txid,
            correlation_id=row.correlation_id,
            expiration=row.expiration,
        )


def _state(options: argparse.Namespace) -> State:
    source = f"{options.source.resolve()} topic={options.topic} to {options.server}"
    state = None if options.state is None else read_state(options.state)
    if state is None:
        return State("replay", uuid.uuid4().hex, source)
    if state.source != source or state.job != "replay":
        raise PipelineError(
            f"{options.state}: belongs to the job {state.job} of {state.source}; use another file"
        )
    return state
