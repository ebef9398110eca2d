"""An engine without sockets: connections are bytes in memory, and time moves when told to."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from amperage.wire.compression import CompressedReader, Compression
from config_schema.problems import Location
from config_schema.spec import ConflatedTopicSpec, JournaledTopicSpec, TopicSpec, ViewSpec
from server.engine.connection_context import ConnectionContext, ConnectionHandle
from server.engine.engine import Engine
from server.expressions import BUILTINS
from server.message_types.registry import MessageTypes
from server.security.authentication import AcceptAllAuthenticator
from server.security.entitlement import FixedEntitlement
from server.security.permissions import ALL_PERMISSIONS
from server.storage.journal import Disk, Journal, JournalSettings
from server.storage.sow.keys.key_source import KeySource
from server.storage.sow.memory_store import MemoryStore
from server.storage.sow.store import RecordStore
from server.storage.sow.topic_records import SowTopicRecords
from server.topics.settings import EngineSettings
from server.topics.transaction_log import TransactionLog
from server.util.clock import SteadySeconds, WallSeconds
from server.util.worker_thread import WorkerThread
from tests.support.raw import frame
from tests.support.waiting import WAIT_SECONDS

TYPES = ("json", "fix", "nvfix", "xml", "bson", "msgpack", "bflat")


class RecordingLog:
    """Keeps the entries that the engine writes."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, object]]] = []

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Keep an entry."""
        self.entries.append((message_id, fields))

    def enabled(self, message_id: str) -> bool:
        """Nothing is traced."""
        return not message_id.startswith(("12-", "17-"))


class SimulatedClock:
    """Time that moves when a test says so.

    Attributes:
        time: what it is now, in seconds.
        lateness: by how many seconds calls come later than asked for.
        wall_offset_s: seconds that the wall clock has been set ahead, or back.
        paused: seconds of a pause of the process, during which nothing has been read yet.
    """

    def __init__(self) -> None:
        self.time = 1_000_000.0
        self.worked = 0.0
        self.work_per_look = 0.0
        self.lateness = 0.0
        self.wall_offset_s = 0.0
        self.paused = 0.0
        self._begun = self.time
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0
        self._listeners: list[Callable[[float], None]] = []

    def now(self) -> WallSeconds:
        """Return the simulated time of the wall clock."""
        return WallSeconds(self.time + self.wall_offset_s + self.paused)

    def steady(self) -> SteadySeconds:
        """Return the simulated time of the steady clock."""
        return SteadySeconds(self.time)

    def steady_unpaused(self) -> SteadySeconds:
        """Return the same: a simulated process is never paused."""
        return SteadySeconds(self.time)

    def on_wall_clock_step(self, notify: Callable[[float], None]) -> Callable[[], None]:
        """Call back when the wall clock is set."""
        self._listeners.append(notify)
        return lambda: self._listeners.remove(notify)

    def set_ahead(self, ahead: float) -> None:
        """Set the wall clock."""
        step, self.wall_offset_s = ahead - self.wall_offset_s, ahead
        for notify in self._listeners:
            notify(step)

    def elapsed(self) -> float:
        """Time that nobody sets; work takes none of it, unless each look at it takes some."""
        self.worked += self.work_per_look
        return self.worked + self.time - self._begun

    def processor_time(self) -> float:
        """The time that work has taken: this look at it takes none."""
        return self.worked

    def call_later(self, delay: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when the time has come."""
        self._made += 1
        call = (self.time + delay + self.lateness, self._made, callback)
        self._calls.append(call)
        return lambda: self._calls.remove(call) if call in self._calls else None

    def turn(self) -> None:
        """Make the calls that are due now, but not those that they ask for."""
        due = sorted((call for call in self._calls if call[0] <= self.time), key=lambda c: c[:2])
        for call in due:
            if call in self._calls:
                self._calls.remove(call)
                call[2]()

    def advance(self, seconds: float) -> None:
        """Move on, making the calls that fall due, in order."""
        end = self.time + seconds
        while self._calls and min(self._calls, key=lambda call: call[:2])[0] <= end:
            call = min(self._calls, key=lambda call: call[:2])
            self._calls.remove(call)
            self.time = call[0]
            call[2]()
        self.time = end


class Core:
    """An engine, and what a test sees of it."""

    transaction_log: TransactionLog

    def __init__(self, *, require_logon: bool = True, message_type: str | None = None) -> None:
        self.log = RecordingLog()
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.clock = SimulatedClock()
        declared = MessageTypes()
        self.types = {name: declared.get(name) for name in TYPES}
        settings = EngineSettings(
            instance_name="core",
            message_types=self.types,
            message_type_modules={name: name for name in self.types},
            unified_fix_tags=frozenset(),
            functions=BUILTINS,
            regex_topics=True,
        )
        self.engine = Engine(
            settings, self.log, self.clock, self.clock.elapsed, self.clock.processor_time
        )
        self.entrance = ConnectionContext(
            transport="test",
            message_type=message_type,
            authenticator=AcceptAllAuthenticator(
                require_logon, require_user_name=False, trust_user_name=True
            ),
            entitlement=FixedEntitlement(ALL_PERMISSIONS),
        )

    def keep(
        self, *specs: TopicSpec, store: RecordStore | None = None, keys: KeySource | None = None
    ) -> None:
        """Give the engine topics with records, in memory if nothing else is given."""
        for spec in specs:
            message_type = self.types[spec.message_type]
            records = MemoryStore() if store is None else store
            sow = SowTopicRecords(spec, message_type, records, BUILTINS, keys)
            self.engine.sow_registry.add(sow, sow.table.store.commit)

    def record(
        self, directory: Path, pattern: str, instance: str = "core", disk: Disk | None = None
    ) -> None:
        """Give the engine a transaction log that commits when told to, and not before."""
        journal = Journal(
            JournalSettings(instance, directory, file_size=1 << 20, preallocated=1),
            lambda: int(self.clock.now() * 1e6),
            lambda _: None,
            lambda _: None,
            disk,
            count(1).__next__,
        )
        spec = JournaledTopicSpec(pattern, True, "json", Location("config.xml", 1))
        helper = WorkerThread(self._posted.put, "core")
        self.transaction_log = TransactionLog(journal, (spec,), instance, helper)
        self.engine.use_transaction_log(self.transaction_log)

    def commit(self) -> None:
        """Put what has been recorded on stable storage, and tell the engine."""
        log = self.transaction_log
        log.journal.commit()
        log.advance_durable(log.journal.durable_txid)
        self.engine.flush()

    def run_helper_calls(self) -> None:
        """Do what helper threads have asked for so far."""
        while not self._posted.empty():
            self._posted.get()()

    def wait_for_helper(self) -> None:
        """Do what a helper thread asks for, as soon as it does."""
        self._posted.get(timeout=WAIT_SECONDS)()
        self.engine.flush()

    def derive(self, *specs: ConflatedTopicSpec | ViewSpec) -> None:
        """Give the engine topics that are made from those, and have them made."""
        for spec in specs:
            self.engine.add_derived_topic(spec)
        self.engine.sow_registry.populate_derived()

    def connect(self) -> CorePeer:
        """A new connection."""
        return CorePeer(self)

    def log_on(self, name: str = "tester") -> CorePeer:
        """A new connection, logged on."""
        peer = self.connect()
        message_type = self.entrance.message_type or "json"
        peer.send({"c": "logon", "cid": "1", "client_name": name, "mt": message_type})
        return peer


class CorePeer:
    """The far end of a connection to the engine."""

    def __init__(self, core: Core) -> None:
        self.received = b""
        self.hung_up = False
        self.is_behind = False
        self.held = 0
        self._core = core
        self.is_paused = False
        link = ConnectionHandle(
            "test",
            self._take,
            self._hang_up,
            lambda: self.is_behind,
            self._hold,
            pause_reading=self._pause,
            resume_reading=self._resume,
        )
        self._session = core.engine.begin_session(core.entrance, link)

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send one frame."""
        self.send_bytes(frame(header, body))

    def send_bytes(self, data: bytes) -> None:
        """Send any bytes."""
        self._session.input.feed(data)
        self._core.engine.flush()

    def read_compressed(self, compression: Compression) -> None:
        """Send compressed bytes from now on."""
        self._session.input.wrap_reader(partial(CompressedReader, compression))

    @property
    def messages_out(self) -> int:
        """How many messages it has been sent, as they are counted for statistics."""
        return self._session.outbox.messages_out

    def leave(self) -> None:
        """Close the connection from this end."""
        self._session.input.on_connection_lost()

    def take_frames(self) -> list[tuple[dict[str, Any], bytes]]:
        """What has been received since the last time."""
        frames = []
        received, self.received = self.received, b""
        start = 0
        while start < len(received):
            (length,) = struct.unpack_from(">I", received, start)
            start += 4 + length
            content = received[start - length : start]
            _, end = json.JSONDecoder().raw_decode(content.decode("latin-1"))
            frames.append((json.loads(content[:end]), content[end:]))
        return frames

    def _take(self, data: bytes) -> None:
        self.received += data

    def _hang_up(self) -> None:
        self.hung_up = True

    def _hold(self, size: int) -> None:
        self.held += size

    def _pause(self) -> None:
        self.is_paused = True

    def _resume(self) -> None:
        self.is_paused = False
