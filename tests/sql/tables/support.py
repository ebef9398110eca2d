"""An engine with topics, and a worker thread that asks for their tables."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import pyarrow as pa

from server.engine.connection_context import ConnectionHandle
from server.security.permissions import ALL_PERMISSIONS, Permissions
from server.sql.query.tables import ScanRequest, Table
from server.sql.tables.catalogue import SessionTables
from server.sql.tables.instance_tables import InstanceTables
from tests.engine.support import Core, CorePeer
from tests.support.waiting import WAIT_SECONDS

_T = TypeVar("_T")

LARGE = 1 << 30


class Tables:
    """The tables of a user, as a worker thread gets them.

    Args:
        core: the engine; its thread is the one that calls this.
        permissions: the user's.
        max_bytes: the most that a scan may take.
        message_type: the only one of the transport; None for all.
    """

    def __init__(
        self,
        core: Core,
        permissions: Permissions = ALL_PERMISSIONS,
        max_bytes: int = LARGE,
        instance_tables: InstanceTables | None = None,
    ) -> None:
        self._core = core
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        link = ConnectionHandle("test", lambda _: None, lambda: None)
        session = core.engine.begin_session(core.entrance, link)
        session.user, session.permissions = "tester", permissions
        session.log_on("tester", "")
        self.source = SessionTables(
            instance_tables or InstanceTables(core.engine), session, self._posted.put, max_bytes
        )

    @property
    def is_scanning(self) -> bool:
        """Whether the engine has begun a scan that has not ended."""
        return self.source._running is not None

    def call(self, work: Callable[[], _T], between: Callable[[], None] = lambda: None) -> _T:
        """Do something on another thread, while this one runs the engine.

        Args:
            work: what the thread does.
            between: called between the rounds of the engine.
        """
        result: Future[_T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while not result.done():
            with contextlib.suppress(Empty):
                self._posted.get(timeout=0.0002 if self.is_scanning else 0.005)()
            between()
            self._core.clock.turn()
        while not self._posted.empty():
            self._posted.get()()
        thread.join(WAIT_SECONDS)
        return result.result()

    def all(self) -> dict[str, Table]:
        """All tables by name."""
        return {table.name: table for table in self.call(self.source.tables)}

    def learn_again(self) -> dict[str, Table]:
        """All tables, a while later."""
        self._core.clock.advance(2)
        return self.all()

    def scan(
        self, *requests: ScanRequest, between: Callable[[], None] = lambda: None
    ) -> list[pa.Table]:
        """The rows of some tables."""
        return [result.data for result in self.call(lambda: self.source.scan(requests), between)]

    def rows(
        self, name: str, *columns: str, filter_: str | None = None, limit: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Some columns of all rows of a table, sorted."""
        table = self.all()[name]
        (data,) = self.scan(ScanRequest(table, columns, filter_, limit))
        assert tuple(data.column_names) == columns
        return sorted(zip(*(data[column].to_pylist() for column in columns), strict=True), key=str)


def types_of(table: Table) -> dict[str, str]:
    """The columns of the fields of a table, with their types."""
    return {
        column.name: column.type.sql_name for column in table.columns if column.path is not None
    }


def publish(peer: CorePeer, topic: str, *messages: dict[str, Any]) -> None:
    """Publish JSON messages."""
    for message in messages:
        peer.send({"c": "publish", "t": topic}, json.dumps(message).encode())


def request(table: Table, columns: Sequence[str], **terms: Any) -> ScanRequest:
    """A scan of some columns."""
    return ScanRequest(table, tuple(columns), **terms)
