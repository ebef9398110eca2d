"""What servers are made to do: the works that are measured and profiled, by names to type.

Each is a configuration and a run of the load generator, which sends as fast as it is let.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness import Measurement, Server, amperage

_LOG: Final = """
  <TransactionLog>
    <JournalDirectory>{directory}/journal</JournalDirectory>
    <JournalSize>256MB</JournalSize>
    <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
"""
_HALF_LOG: Final = _LOG.replace(".*", "[02468]$")
_RECORDS: Final = """
  <SOW>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
      <FileName>{directory}/orders.sow</FileName>
    </Topic>
  </SOW>
"""

_TOPICS_20: Final = "".join(
    f"<Topic><Name>orders/{number}</Name><MessageType>json</MessageType><Key>/id</Key>"
    f"<FileName>{{directory}}/{number}.sow</FileName></Topic>"
    for number in range(20)
)
_MIXED_RECORDS: Final = f"<SOW>{_TOPICS_20}</SOW>"
"""Records of 20 topics."""

_MAX_SECONDS: Final = 300
"""How long a run may take, with 100,000 subscriptions before it."""
_FAN_OUT: Final = ("-subs", "10", "-window", "4096")
_FIVE: Final = ("-filter", "five", "-sel", "0.01")
_ALONE: Final = ("-subs", "0")
_PERSISTED: Final = (*_ALONE, "-ack", "persisted")
MIXED: Final = ("-topics", "100", "-mixed", "1")
"""Mixed traffic: each message to one of 100 topics, with a quarter to 1.75 times the size.

With `-headers 1`, headers have their keys in two orders, and some a correlation id or a lifetime.
"""
_MIXED_20: Final = ("-topics", "20", "-mixed", "1")


@dataclass(frozen=True, slots=True)
class Work:
    """Something that servers are made to do.

    Attributes:
        name: what a user types.
        what: what tables call it.
        arguments: those of the load generator, without the size of a body.
        elements: those of the server's configuration, with `{directory}` for its files.
        size: bytes of a body.
    """

    name: str
    what: str
    arguments: Sequence[str] = ()
    elements: str = ""
    size: int = 256

    def load(self, server: Server, *, seconds: float, warm: float = 0.3) -> Measurement:
        """Have a server do it.

        Args:
            server: one that `serving` started, or a peer.
            seconds: how long it is measured.
            warm: how many seconds of the same come before that.

        Returns:
            What the load generator found.

        Raises:
            RuntimeError: messages were lost, or the run failed.
        """
        span = ("-warm", str(warm), "-secs", str(seconds), "-maxsecs", str(_MAX_SECONDS))
        return server.load("-size", str(self.size), *span, *self.arguments)


def _filters(count: int, connections: int) -> tuple[str, ...]:
    several = ("-subs", str(count), "-subconns", str(connections))
    return (*several, "-filter", "eq", "-window", "8192")


WORKS: Final[Mapping[str, Work]] = {
    work.name: work
    for work in (
        Work("publish", "published, nobody listens, 256 B", _ALONE),
        Work("publish-1k", "published, nobody listens, 1 KB", _ALONE, size=1024),
        Work("plain", "1 to 1, 256 B"),
        Work("plain-1k", "1 to 1, 1 KB", size=1024),
        Work("fan-out", "1 to 10, 256 B", _FAN_OUT),
        Work("fan-out-1k", "1 to 10, 1 KB", _FAN_OUT, size=1024),
        Work("five", "five predicates, 1% match, 256 B", _FIVE),
        Work("five-1k", "five predicates, 1% match, 1 KB", _FIVE, size=1024),
        Work("filter", "1 to 1, a filter, 256 B", ("-filter", "eq")),
        Work("filter-1k", "1 to 1, a filter, 1 KB", ("-filter", "eq"), size=1024),
        Work("filters", "1,000 filters, 10 connections", _filters(1_000, 10)),
        Work("filters-10k", "10,000 filters, 10 connections", _filters(10_000, 10)),
        Work("filters-100k", "100,000 filters, 10 connections", _filters(100_000, 10)),
        Work("filtered-clients", "1,000 filters, 1,000 connections", _filters(1_000, 1_000)),
        Work("plain-mixed", "1 to 1, 256 B, mixed", MIXED),
        Work("plain-mixed-1k", "1 to 1, 1 KB, mixed", MIXED, size=1024),
        Work("fan-out-mixed", "1 to 10, 256 B, mixed", (*_FAN_OUT, *MIXED)),
        Work("five-mixed", "five predicates, 1% match, 256 B, mixed", (*_FIVE, *MIXED)),
        Work("filters-mixed", "100 filters, 10 connections, mixed", (*_filters(100, 10), *MIXED)),
        Work("thousand-topics", "1 to 1, 256 B, 1,000 topics", ("-topics", "1000", "-mixed", "1")),
        Work("publishers-mixed", "10 publishers, 256 B, mixed", ("-pubs", "10", *MIXED)),
        Work("log-mixed", "in the log, persisted acks, 256 B, mixed", (*_PERSISTED, *MIXED), _LOG),
        Work(
            "log-mixed-1k",
            "in the log, persisted acks, 1 KB, mixed",
            (*_PERSISTED, *MIXED),
            _LOG,
            1024,
        ),
        Work(
            "half-log-mixed",
            "half of the topics in the log, persisted acks, 256 B, mixed",
            (*_PERSISTED, *MIXED),
            _HALF_LOG,
        ),
        Work(
            "headers-mixed",
            "in the log, persisted acks, headers vary, 20 topics, 256 B, mixed",
            (*_PERSISTED, *_MIXED_20, "-headers", "1"),
            _LOG,
        ),
        Work("log", "in the log, persisted acks, 256 B", _PERSISTED, _LOG),
        Work("log-1k", "in the log, persisted acks, 1 KB", _PERSISTED, _LOG, 1024),
        Work("records", "records in a file, 256 B", _ALONE, _RECORDS),
        Work("records-1k", "records in a file, 1 KB", _ALONE, _RECORDS, 1024),
        Work(
            "records-mixed",
            "records in files, 20 topics, 256 B, mixed",
            (*_ALONE, *_MIXED_20),
            _MIXED_RECORDS,
        ),
        Work("records-log", "records and log, persisted acks, 256 B", _PERSISTED, _RECORDS + _LOG),
        Work(
            "records-log-1k",
            "records and log, persisted acks, 1 KB",
            _PERSISTED,
            _RECORDS + _LOG,
            1024,
        ),
        Work(
            "records-log-mixed",
            "records and log, persisted acks, 20 topics, 256 B, mixed",
            (*_PERSISTED, *_MIXED_20),
            _MIXED_RECORDS + _LOG,
        ),
        Work(
            "records-headers-mixed",
            "records and log, persisted acks, headers vary, 20 topics, 256 B, mixed",
            (*_PERSISTED, *_MIXED_20, "-headers", "1"),
            _MIXED_RECORDS + _LOG,
        ),
        Work(
            "deltas-mixed",
            "deltas of records, in the log, persisted acks, 20 topics, 256 B, mixed",
            (*_PERSISTED, *_MIXED_20, "-cmd", "delta_publish"),
            _MIXED_RECORDS + _LOG,
        ),
    )
}
"""By name, in the order of tables."""


@contextmanager
def serving(work: Work) -> Iterator[Server]:
    """Our server, configured for a work, with files of its own below build/."""
    with (
        tempfile.TemporaryDirectory(dir=files()) as directory,
        amperage(work.elements.format(directory=directory)) as server,
    ):
        yield server


def files() -> Path:
    """Where files of servers are: on the disk of the checkout, which /tmp may not be on."""
    path = Path("build", "benchmarks").resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path
