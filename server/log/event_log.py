"""The log of the server, as used by the rest of the server.

Theory of operation. `emit` runs on the message path, so it does the minimum: one dictionary
look-up determines whether any target wants the message; if so, the values, the time and the thread
are appended to a bounded backlog (entry_buffer.py). One thread (writer.py) renders them to lines:
at once at low rates, some milliseconds later and in batches during a flood of entries. Each target
has a bounded queue and a thread that writes it (target_writer.py). A slow, stalled or broken target
therefore costs its own log entries, never messages or the entries of other targets. The look-up
table is made from the selections of all targets; another one takes its place when an operator
overrides the level of a target, or reloads the configuration.

Because lines are rendered later, by another thread, the values given to `emit` must not change any
more: text, bytes, numbers, or immutable objects with a `__str__`.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from config_schema.problems import Problem, Severity
from config_schema.spec import LogTargetSpec
from server.log.catalogue import CATALOGUE, CatalogueMessage
from server.log.entry_buffer import EntryBuffer, TargetRequest, TargetRequestKind
from server.log.target_filter import LevelOverride
from server.log.target_writer import complain
from server.log.targets import LogTarget, open_targets
from server.log.targets.memory import MemoryTarget
from server.log.targets.syslog import SOCKET
from server.log.writer import EventLogWriter

WAIT_SECONDS: Final = 5.0
"""Timeout of flush() and close() for targets that accept no data."""

PROBLEM_IDS: Final = {
    Severity.ERROR: "00-0008",
    Severity.WARNING: "00-0009",
    Severity.INFO: "00-0010",
}
"""The ids of entries about problems in a configuration."""


class EventLog:
    """Writes messages of the catalogue to the targets of a configuration.

    Safe to use from any thread. Make it after the process has detached from its terminal, not
    before: its thread does not survive a fork.

    Args:
        targets: the configuration's logging targets; with none, nothing is ever logged.
        instance_name: the identity of syslog targets without an Ident.
        clock: nanoseconds since the epoch.
        syslog_address: the path of the system logger's socket.
        recent: keeps the last entries in memory; None to keep none.

    Raises:
        LogTargetError: a target is configured wrongly or its file cannot be opened.

    Attributes:
        targets: the targets, with their counters, in the order of the configuration.
    """

    def __init__(
        self,
        targets: Sequence[LogTargetSpec],
        instance_name: str,
        clock: Callable[[], int] = time.time_ns,
        *,
        syslog_address: str = SOCKET,
        recent: MemoryTarget | None = None,
    ) -> None:
        """Open the targets and start the writer."""
        self.targets, remarks = open_targets(targets, instance_name, clock(), syslog_address)
        self.recent: Final = recent
        self._all_targets = self.targets if recent is None else (*self.targets, recent)
        self._instance_name = instance_name
        self._syslog_address = syslog_address
        self._clock = clock
        self._routes = _routes(self._all_targets)
        self._buffer = EntryBuffer()
        self._thread_counter = itertools.count(1)
        self._thread_numbers = {threading.get_ident(): next(self._thread_counter)}
        writer = EventLogWriter(self._buffer, self._all_targets, clock, next(self._thread_counter))
        # A daemon thread, so that a program that ends without close() still ends.
        self._writer = threading.Thread(target=writer.run, name="log writer", daemon=True)
        self._writer.start()
        for remark in remarks:
            self.emit_problem(remark)

    def emit_problem(self, problem: Problem) -> None:
        """Log a problem found in the configuration."""
        self.emit(
            PROBLEM_IDS[problem.severity],
            location=problem.location,
            element=problem.element,
            problem=problem.message,
            hint=problem.hint,
        )

    def emit(self, message_id: str, /, **fields: object) -> None:
        """Log a message. Never waits, never raises.

        Args:
            message_id: an id of the catalogue.
            **fields: the values for its text; a missing one is shown as `?`.
        """
        route = self._routes.get(message_id)
        if route is not None:
            ident = threading.get_ident()
            thread = self._thread_numbers.get(ident) or self._number_thread(ident)
            self._buffer.append_entry((route[0], route[1], self._clock(), thread, fields))
        elif message_id not in CATALOGUE:
            self.emit("01-0002", id=message_id, fields=fields)

    def enabled(self, message_id: str) -> bool:
        """Return whether any target wants the message; check it before making costly values."""
        return message_id in self._routes

    def override_level(self, target: LogTarget, override: LevelOverride | None) -> None:
        """Override the level of a target, or let it be as configured; from the next entry on.

        Raises:
            re.error: the override's pattern is not a regular expression.
        """
        target.override_level(override)
        self._routes = _routes(self._all_targets)

    def open_targets(self, specs: Sequence[LogTargetSpec]) -> tuple[LogTarget, ...]:
        """Open further targets, for `replace_targets`.

        Raises:
            LogTargetError: see `EventLog`; none is open.
        """
        return open_targets(specs, self._instance_name, self._clock(), self._syslog_address)[0]

    def replace_targets(self, targets: Mapping[LogTarget, LogTargetSpec]) -> None:
        """Replace the targets; from the next entry on.

        Args:
            targets: all targets, those that stay and those that `open_targets` has opened, with
                their configurations, which have been checked. A target that stays may have another
                selection and threshold; an override of its level lasts.
        """
        added = [target for target in targets if target not in self.targets]
        removed = [target for target in self.targets if target not in targets]
        for target, spec in targets.items():
            if spec != target.spec:
                target.reconfigure(spec)
        self._buffer.append_request(TargetRequest(TargetRequestKind.ADD, added))
        self.targets = tuple(targets)
        recent = () if self.recent is None else (self.recent,)
        self._all_targets = (*self.targets, *recent)
        self._routes = _routes(self._all_targets)
        self._buffer.append_request(TargetRequest(TargetRequestKind.REMOVE, removed))

    def flush(self) -> bool:
        """Wait until everything logged so far has been written.

        Returns:
            False if the targets did not accept all of it within `WAIT_SECONDS`.
        """
        return self._submit_request(TargetRequestKind.FLUSH).done.wait(WAIT_SECONDS)

    def allow_rotation(self) -> None:
        """Allow file targets to rotate when files are full, which may truncate an earlier log.

        Before the instance has started, files are only appended to: an accidental second start
        must not truncate the log of the running instance, and a start after a crash must not
        truncate the entries that explain the crash.
        """
        self._submit_request(TargetRequestKind.ALLOW_ROTATION)

    def rotate(self) -> None:
        """Rotate file targets to their next file, after everything logged so far.

        Does not wait; `flush` afterwards does.
        Source: AMPS User Guide, Rotate Error/Event Log.
        """
        self._submit_request(TargetRequestKind.ROTATE)

    def close(self) -> None:
        """Write everything logged so far and close the targets; later entries are ignored."""
        self._routes = {}
        request = self._submit_request(TargetRequestKind.CLOSE)
        if not request.done.wait(WAIT_SECONDS):
            names = ", ".join(target.name for target in request.unfinished)
            complain(
                f"the log could not be written to its end within {WAIT_SECONDS:.0f} seconds, "
                f"because these targets take no data: {names}"
            )

    def _submit_request(self, kind: TargetRequestKind) -> TargetRequest:
        if not self._writer.is_alive():
            return TargetRequest(kind, ())  # closed: everything has been written
        request = TargetRequest(kind, self._all_targets)
        self._buffer.append_request(request)
        return request

    def _number_thread(self, ident: int) -> int:
        """Assign numbers to threads in the order of their first entry; the main thread is 1."""
        return self._thread_numbers.setdefault(ident, next(self._thread_counter))


def _routes(
    targets: Sequence[LogTarget],
) -> dict[str, tuple[CatalogueMessage, tuple[LogTarget, ...]]]:
    """Return the messages that any target wants, by id, with those targets."""
    routes: dict[str, tuple[CatalogueMessage, tuple[LogTarget, ...]]] = {}
    for message in CATALOGUE.values():
        recipients = tuple(target for target in targets if message.id in target.selected_ids)
        if recipients:
            routes[message.id] = message, recipients
    return routes
