"""The users files of an instance: read at the start, and again when they change.

One file serves all transports that name it. A changed file is read on a helper thread. If it cannot
be used, its last content stays in force, and the log has the reason. Otherwise it takes effect at
once: users with changed permissions and removed users are disconnected, as by a reset of
entitlement, and get the new permissions when they log on again. A changed password disconnects no
client, as with a reset of authentication; but sessions (cookies) of the old password end.

Everything runs on the engine's thread, except for the reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from config_schema.problems import Problem, Problems, Severity
from server.security.users.password_checks import PasswordChecks
from server.security.users.password_hashes import make_decoy_hash
from server.security.users.users import Users, read_users_file

if TYPE_CHECKING:
    from server.expressions.functions.registry import Functions
    from server.process.file_watch import FileWatch
    from server.security.async_worker import AsyncWorker
    from server.security.users.password_hashes import PasswordHash
    from server.security.users.users import User
    from server.util.log_protocol import ServerLog

UserDisconnect: TypeAlias = Callable[[Collection[str], Collection[str]], None]
"""Disconnects users (second) from transports (first), and ends their cookies."""

FileUses: TypeAlias = Mapping[str, tuple[Collection[str], Collection[str]]]
"""The transports that use files for authentication (first) and entitlement, by path."""


class UsersFileError(ValueError):
    """A file cannot be used. The text has the problem and its line."""


class UsersFile:
    """A users file, with the content of the last successful read.

    Args:
        path: the file.
        functions: the functions that its filters may call.
        worker: runs the reading.
        log: records its events.

    Attributes:
        authenticated_transports: the transports that it authenticates users for.
        entitled_transports: the transports that it has permissions for.
        password_checks: checks passwords.

    Raises:
        UsersFileError: it cannot be used.
    """

    def __init__(
        self, path: str, functions: Functions, worker: AsyncWorker, log: ServerLog
    ) -> None:
        self.path: Final = path
        self.authenticated_transports: Final[set[str]] = set()
        self.entitled_transports: Final[set[str]] = set()
        self.password_checks: Final = PasswordChecks(worker)
        self._functions = functions
        self._worker = worker
        self._log = log
        self._disconnect: UserDisconnect | None = None
        self._end_watch: Callable[[], None] = lambda: None
        self._is_closed = False
        self._is_reading = False
        self._has_changed = False
        problems = Problems()
        users = read_users_file(path, functions, problems)
        self._log_warnings(problems)
        if users is None:
            raise UsersFileError(_summary(problems))
        self._set_users(users)

    def find(self, name: str) -> User | None:
        """Return a user; None if there is none of this name."""
        return self._users.users.get(name)

    @property
    def decoy_hash(self) -> PasswordHash:
        """The hash to compare with for users that are unknown or have no password."""
        return self._decoy_hash

    @property
    def usual_iterations(self) -> int:
        """See `Users`."""
        return self._users.usual_iterations

    def watch(self, file_watch: FileWatch, disconnect: UserDisconnect) -> None:
        """Read the file again whenever it changes."""
        self._disconnect = disconnect
        self._end_watch = file_watch.watch(
            Path(self.path), lambda _change: self.reload(), with_mode=True
        )

    def close(self) -> None:
        """Read the file no more."""
        self._is_closed = True
        self._end_watch()

    def set_transports(self, authenticated: Collection[str], entitled: Collection[str]) -> None:
        """Replace the transports that use the file."""
        self.authenticated_transports.clear()
        self.authenticated_transports.update(authenticated)
        self.entitled_transports.clear()
        self.entitled_transports.update(entitled)

    def reload(self) -> None:
        """Read the file again; during a read, once more after it."""
        self._has_changed = True
        if self._is_reading:
            return
        self._has_changed = False
        self._is_reading = True

        async def read() -> tuple[Users | None, Problems]:
            problems = Problems()
            users = await asyncio.to_thread(read_users_file, self.path, self._functions, problems)
            return users, problems

        def give_up(problem: str) -> tuple[Users | None, Problems]:
            self._log.emit("25-0061", path=self.path, problem=problem)
            return None, Problems()

        self._worker.submit(read, give_up).add_done_callback(self._on_loaded)

    def _on_loaded(self, answer: tuple[Users | None, Problems]) -> None:
        users, problems = answer
        self._is_reading = False
        if self._is_closed:
            return
        self._log_warnings(problems)
        if users is not None:
            self._replace_users(users)
        elif problems.has_errors:
            self._log.emit("25-0061", path=self.path, problem=_summary(problems))
        if self._has_changed:
            self.reload()

    def _replace_users(self, users: Users) -> None:
        changed, removed = users.changed_since(self._users)
        renewed = users.with_other_passwords(self._users)
        self._set_users(users)
        self._log.emit(
            "25-0060",
            path=self.path,
            users=len(users.users),
            changed=len(changed),
            gone=len(removed),
        )
        if self._disconnect is None:
            return
        if changed or removed:
            self._disconnect(self.entitled_transports, changed | removed)
        if removed:
            self._disconnect(self.authenticated_transports - self.entitled_transports, removed)
        if renewed:
            self._disconnect((), renewed)

    def _set_users(self, users: Users) -> None:
        self._users = users
        self._decoy_hash = make_decoy_hash(users.usual_cost)

    def _log_warnings(self, problems: Problems) -> None:
        for problem in problems:
            if problem.severity is Severity.WARNING:
                self._log.emit("25-0062", problem=_plain(problem))


class UsersFiles:
    """The users files of an instance: each is read once for all transports that name it."""

    def __init__(self) -> None:
        self._files: dict[str, UsersFile] = {}
        self._watch: Callable[[UsersFile], None] = lambda _file: None

    def open(
        self, path: str, functions: Functions, worker: AsyncWorker, log: ServerLog
    ) -> UsersFile:
        """Return a file, and read it first unless it has been read.

        Raises:
            UsersFileError: it cannot be used.
        """
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = UsersFile(path, functions, worker, log)
            self._watch(file)
        return file

    def watch(self, file_watch: FileWatch, disconnect: UserDisconnect) -> None:
        """Read files again when they change.

        Args:
            file_watch: notifies of changes.
            disconnect: called for users with changed permissions.
        """
        self._watch = lambda file: file.watch(file_watch, disconnect)
        for file in self._files.values():
            self._watch(file)

    def set_uses(self, uses: FileUses) -> None:
        """Set the transports that use each file, and close files that none uses."""
        for path, file in list(self._files.items()):
            authenticated, entitled = uses.get(path, ((), ()))
            file.set_transports(authenticated, entitled)
            if not authenticated and not entitled:
                self._files.pop(path).close()


def _summary(problems: Problems) -> str:
    """Return the first error, and the number of the others, as one sentence."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    further = len(errors) - 1
    others = f" (and {further} more: amps-users check tells all)" if further else ""
    return _plain(errors[0]) + others


def _plain(problem: Problem) -> str:
    """Return a problem as text without its severity, which the log has."""
    subject = f"{problem.element}: " if problem.element else ""
    advice = f"; {problem.hint}" if problem.hint else ""
    return f"{problem.location}: {subject}{problem.message}{advice}"
