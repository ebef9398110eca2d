"""The memory for rows of tables that a query process and the server share: a memfd.

The server writes the rows of each query there, as Arrow IPC streams one after the other, and the
process reads them in place. The memory is kept for further queries, since fresh pages cost several
times as much as the copy into them; memory of a query beyond `KEPT_TABLE_BYTES` is given back.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from server.sql.query.errors import SqlError
from server.sql.query.processes.protocol import KEPT_TABLE_BYTES, TableSegment
from server.sql.sqlstate import OUT_OF_MEMORY

_ALIGNMENT: Final = 64
"""Bytes: where rows begin, which are used in place. Arrow's recommendation."""


class TableMemory:
    """The server's side of the memory of one process."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._memory: mmap.mmap | None = None

    def write(self, tables: Mapping[str, pa.Table]) -> tuple[tuple[TableSegment, ...], int | None]:
        """Write the rows of the tables of a query; those of the query before it are lost.

        Args:
            tables: the tables by their names in the query.

        Returns:
            Where each table is, and the descriptor of the memory if the process has not got it.

        Raises:
            SqlError: the system has no memory for them.
        """
        segments: list[TableSegment] = []
        end = 0
        for name, table in tables.items():
            offset = -(-end // _ALIGNMENT) * _ALIGNMENT
            segments.append(TableSegment(name, offset, _stream_size(table)))
            end = offset + segments[-1].size
        if not segments:
            return (), None
        memory, descriptor = self._memory, None
        if memory is None or len(memory) < end:
            memory = self._reserve(end)
            descriptor = self._descriptor
        content = memoryview(memory)
        for segment in segments:
            place = content[segment.offset : segment.offset + segment.size]
            _write_stream(tables[segment.name], pa.FixedSizeBufferWriter(pa.py_buffer(place)))
        return tuple(segments), descriptor

    def release_excess(self) -> None:
        """Give back memory beyond `KEPT_TABLE_BYTES`, as the process does at the end of a query."""
        if self._memory is not None and len(self._memory) > KEPT_TABLE_BYTES:
            self.close()

    def close(self) -> None:
        """Give back the memory; harmless if there is none."""
        self._memory = None  # unmapped with the last buffer of Arrow
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _reserve(self, size: int) -> mmap.mmap:
        self.close()
        self._descriptor = os.memfd_create("query-tables", os.MFD_CLOEXEC)
        try:
            # Without it, a write to a page that the system cannot provide would be a signal.
            os.posix_fallocate(self._descriptor, 0, size)
            self._memory = mmap.mmap(self._descriptor, size)
        except OSError as error:
            self.close()
            raise SqlError(
                OUT_OF_MEMORY, f"no memory for the records of the query: {error.strerror}"
            ) from None
        return self._memory


def _stream_size(table: pa.Table) -> int:
    sink = pa.MockOutputStream()
    _write_stream(table, sink)
    return int(sink.size())


def _write_stream(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
