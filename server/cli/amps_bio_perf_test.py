"""`amps_bio_perf_test`: measures how fast a disk accepts the writes of a transaction log.

One thread writes batches of messages sequentially, from the beginning of a preallocated file,
bypassing the system's cache; another one reads them back, as often as the configured mix of reads
and writes requires. All buffers for data and results are allocated before the measurement starts.

Source: AMPS User Guide, amps_bio_perf_test.
"""

from __future__ import annotations

import argparse
import csv
import errno
import mmap
import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Final, NamedTuple

from server.app.command_line import CommandLineParser, make_parser
from server.app.stdio import say
from server.cli.entry_point import command
from server.cli.journal_text import write_out
from server.util.json_lines import json_document

_NAME: Final = "amps_bio_perf_test"
_UNIT: Final = 256
"""The size of a message is a multiple of this number of bytes."""

_MAX_MESSAGE: Final = 128 * 1024
_MAX_BATCH: Final = 256
_MAX_FILE: Final = 8192  # MB
_MB: Final = 1024 * 1024
_SECTOR: Final = 4096
"""Bytes: size, offset and buffer address of direct I/O must be multiples of this."""

_MAX_HEAD_LENGTH: Final = 100
"""Characters read from a file to check that it is one of our tables."""

_INTERVAL: Final = 100_000_000
"""Nanoseconds between two samples of the throughput."""

_STRIDE: Final = 2_654_435_761
"""Number of batches from one read to the next, so that readahead has no effect."""


@dataclass(frozen=True, slots=True)
class PerfWorkload:
    """The parameters of a measurement.

    Attributes:
        message_bytes: bytes of a message.
        batch_messages: messages per write.
        write_count: number of batches.
        read_percentage: percentage of reads among all operations.
        is_durable: each write must be on stable storage before the next one, as commits are.
    """

    message_bytes: int
    batch_messages: int
    write_count: int
    read_percentage: int
    is_durable: bool

    @property
    def write_bytes(self) -> int:
        """Bytes of a write."""
        return self.message_bytes * self.batch_messages


@dataclass(frozen=True, slots=True)
class PerfResult:
    """The result of a measurement.

    Attributes:
        began_ns: start time in nanoseconds, by the clock of `ended_ns`.
        ended_ns: the end time of each write.
        durations_ns: the duration of each write, in nanoseconds.
        read_count: number of reads.
    """

    began_ns: int
    ended_ns: Sequence[int]
    durations_ns: Sequence[int]
    read_count: int

    @property
    def seconds(self) -> float:
        """Duration of the measurement."""
        return max(self.ended_ns[-1] - self.began_ns, 1) / 1e9


@command(_NAME)
def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a disk.

    Returns:
        The exit status: 0; 1 if the file cannot be made or written; 2 if the command line is
        invalid.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    size = options.batch_size * options.message_size
    if size % _SECTOR:
        parser.error(
            f"a batch of {options.batch_size} messages of {options.message_size} bytes has {size}"
            f" bytes: expected a multiple of {_SECTOR}, which disks are written by"
        )
    writes = options.file_size * _MB // size
    if not writes:
        parser.error(f"a file of {options.file_size} MB has no room for a batch of {size} bytes")
    work = PerfWorkload(
        options.message_size, options.batch_size, writes, options.read_mix, options.durable
    )
    latencies, throughput = (Path(f"{options.file}.{of}.csv") for of in ("latency", "throughput"))
    for path, head in ((latencies, _LATENCIES), (throughput, _THROUGHPUT)):
        if not _is_result_table(path, head):
            say(f"{_NAME}: {path}: rows are added to what is there, and this is no such table")
            return 1
    try:
        with _file(options.file, work) as descriptor:
            result = _measure(descriptor, work)
    except FileExistsError:
        say(f"{_NAME}: {options.file}: is there already: expected the name of a new file")
        return 1
    _write_csv(latencies, _LATENCIES, _latencies(result))
    _write_csv(throughput, _THROUGHPUT, _throughput(result, work))
    metrics = _metrics(result, work)
    if options.json:
        write_out([json_document({metric.json_name: metric.value for metric in metrics})])
        return 0
    for metric in metrics:
        value = f"{metric.value:.{metric.digits}f} {metric.unit}".rstrip()
        print(f"{metric.name:<21}: {value}")
    return 0


@contextmanager
def _file(path: Path, work: PerfWorkload) -> Iterator[int]:
    """Create the file with all its space allocated; delete it at the end."""
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | (os.O_DSYNC if work.is_durable else 0)
    try:
        descriptor = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        path.unlink(missing_ok=True)  # a refused O_DIRECT may still create the file
        say(f"{_NAME}: {path}: goes through the system's cache: its file system knows no other way")
        descriptor = os.open(path, flags, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, work.write_count * work.write_bytes)
        yield descriptor
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


def _measure(descriptor: int, work: PerfWorkload) -> PerfResult:
    ended, took = (array("q", bytes(8 * work.write_count)) for _ in range(2))
    with closing(mmap.mmap(-1, work.write_bytes)) as batch:  # page-aligned, as O_DIRECT requires
        batch.write(os.urandom(work.write_bytes))
        reader = _BatchReader(descriptor, work)
        reader.start()
        began = perf_counter_ns()
        try:
            for which in range(work.write_count):
                start = perf_counter_ns()
                _write(descriptor, batch, which * work.write_bytes)
                ended[which] = now = perf_counter_ns()
                took[which] = now - start
                reader.set_written(which + 1)
        finally:
            reader.stop()
    return PerfResult(began, ended, took, reader.read_count)


def _write(descriptor: int, batch: mmap.mmap, offset: int) -> None:
    written = os.pwrite(descriptor, batch, offset)
    if written != len(batch):
        raise OSError(errno.EIO, f"wrote {written} of {len(batch)} bytes")


class _BatchReader(threading.Thread):
    """Reads batches that have been written.

    Args:
        descriptor: descriptor of the file.
        work: its read mix determines how often.
    """

    def __init__(self, descriptor: int, work: PerfWorkload) -> None:
        super().__init__(name="reader", daemon=True)
        self.read_count = 0
        self._descriptor = descriptor
        self._size = work.write_bytes
        self._reads_per_write = work.read_percentage / (100 - work.read_percentage)
        self._written = 0
        self._is_stopping = False
        self._wakeup = threading.Event()

    def set_written(self, written: int) -> None:
        """Set the number of batches that are written and may be read."""
        self._written = written
        if self._reads_per_write:
            self._wakeup.set()

    def stop(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._is_stopping = True
        self._wakeup.set()
        self.join()

    def run(self) -> None:
        """See `Thread`."""
        with closing(mmap.mmap(-1, self._size)) as batch:
            while not self._is_stopping:
                self._wakeup.wait()
                self._wakeup.clear()
                while (
                    not self._is_stopping
                    and self.read_count < self._written * self._reads_per_write
                ):
                    offset = self.read_count * _STRIDE % self._written * self._size
                    os.preadv(self._descriptor, [batch], offset)
                    self.read_count += 1


class _Metric(NamedTuple):
    """A named value, with its unit and the number of decimal digits to print."""

    name: str
    value: float
    unit: str = ""
    digits: int = 0

    @property
    def json_name(self) -> str:
        """The name with its unit."""
        return f"{self.name} {self.unit.replace('%', 'percent')}".rstrip()


def _metrics(result: PerfResult, work: PerfWorkload) -> Iterator[_Metric]:
    seconds, write_count = result.seconds, work.write_count
    yield _Metric("elapsed time", seconds, "s", 3)
    yield _Metric("writer thread count", 1)
    yield _Metric("batch size", work.batch_messages)
    yield _Metric("submit size", work.message_bytes, "bytes")
    yield _Metric("write size", work.write_bytes, "bytes")
    yield _Metric("submit count", write_count * work.batch_messages)
    yield _Metric("read count", result.read_count)
    yield _Metric("write count", write_count)
    yield _Metric("submit rate", write_count * work.batch_messages / seconds, "per second")
    yield _Metric("write rate", write_count / seconds, "per second")
    yield _Metric(
        "actual read mix", 100 * result.read_count / (write_count + result.read_count), "%", 1
    )
    yield _Metric(
        "mean write latency", sum(result.durations_ns) / write_count / 1000, "microseconds", 1
    )


_LATENCIES: Final = ("write", "ended_ns", "latency_ns")
_THROUGHPUT: Final = ("elapsed_ns", "messages", "bytes")


def _latencies(result: PerfResult) -> Iterator[tuple[int, int, int]]:
    for which, (ended, took) in enumerate(zip(result.ended_ns, result.durations_ns, strict=True)):
        yield which, ended - result.began_ns, took


def _throughput(result: PerfResult, work: PerfWorkload) -> Iterator[tuple[int, int, int]]:
    """Yield the messages and bytes written in each interval."""
    writes, until = 0, _INTERVAL
    for ended in result.ended_ns:
        while ended - result.began_ns > until:
            yield until, writes * work.batch_messages, writes * work.write_bytes
            writes, until = 0, until + _INTERVAL
        writes += 1
    yield (
        result.ended_ns[-1] - result.began_ns,
        writes * work.batch_messages,
        writes * work.write_bytes,
    )


def _is_result_table(path: Path, head: Sequence[str]) -> bool:
    """Return True if rows can be added: the file is missing, empty, or such a table.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():
        return not path.exists()
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        first = file.readline(_MAX_HEAD_LENGTH)
    return not first or first.rstrip("\r\n") == ",".join(head)


def _write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[int]]) -> None:
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if not file.tell():
            writer.writerow(head)
        writer.writerows(rows)


def _number(minimum: int, maximum: int, multiple: int = 1) -> Callable[[str], int]:
    """Return the parser of a number on the command line."""

    def read(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if not minimum <= value <= maximum or value % multiple:
            of = f", a multiple of {multiple}" if multiple > 1 else ""
            raise argparse.ArgumentTypeError(
                f"expected a number from {minimum} to {maximum}{of}, not {text!r}"
            )
        return value

    return read


def _parser() -> CommandLineParser:
    parser = make_parser(
        _NAME,
        "Measure how fast a disk takes what a transaction log writes.",
        as_json="print the metrics as a JSON object",
        epilog="The rows of FILE.latency.csv and FILE.throughput.csv are added to what is there.",
    )
    add = parser.add_argument
    add(
        "-b",
        "--batch_size",
        type=_number(1, _MAX_BATCH),
        default=128,
        metavar="MESSAGES",
        help="messages that are written at once, 1 to 256 (128)",
    )
    add(
        "-m",
        "--message_size",
        type=_number(_UNIT, _MAX_MESSAGE, _UNIT),
        default=512,
        metavar="BYTES",
        help="of a message: 256 to 131072, a multiple of 256 (512)",
    )
    add(
        "-s",
        "--file_size",
        type=_number(1, _MAX_FILE),
        default=1024,
        metavar="MB",
        help="what is written in all, at most 8192 (1024)",
    )
    add(
        "-r",
        "--read_mix",
        type=_number(0, 99),
        default=0,
        metavar="PERCENT",
        help="of all operations that are to be reads, 0 to 99 (0)",
    )
    add(
        "-f",
        "--file",
        type=Path,
        required=True,
        help="a new file on the disk that is to be measured; it is removed afterwards",
    )
    add(
        "--durable",
        action="store_true",
        help="have each write on stable storage before the next, as a commit of the server",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
