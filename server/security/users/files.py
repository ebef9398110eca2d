"""The files of users that an instance has: read at the start, and again when they change.

One file serves all transports that name it. A file that has changed is read on a helper thread. If
it cannot be used, what it said before stays in force, and the log says what is wrong. Otherwise it
takes effect at once: users whose permissions are others now, and users who have gone, are
disconnected as by a reset of entitlement, and find the new ones when they come back. A password
that has changed disconnects nobody, just as a reset of authentication does not; but cookies end
that stand for the one before.

Everything here is done on the engine's thread, except for the reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from config_schema.problems import Problem, Problems, Severity
from server.security.users.password_checks import PasswordChecks
from server.security.users.password_hashes import hash_of_nothing
from server.security.users.users import Users, read_users_file

if TYPE_CHECKING:
    from server.base.log import Log
    from server.expressions.functions.registry import Functions
    from server.security.desk import Desk
    from server.security.users.password_hashes import PasswordHash
    from server.security.users.users import User

Disconnect: TypeAlias = Callable[[Collection[str], Collection[str]], None]
"""Disconnects users (second) from transports (first), and ends their cookies."""


class Watcher(Protocol):
    """Tells of files that change."""

    def watch(
        self, path: Path, told: Callable[[str], None], *, with_mode: bool = False
    ) -> Callable[[], None]:
        """Have a function called when a file, or who may read it, has changed."""


class UsersFileError(ValueError):
    """A file cannot be used. The text says what is wrong in which line."""


class UsersFile:
    """A file of users, as it was when it was read last, if it was good then.

    Args:
        path: the file.
        functions: what its filters may call.
        desk: has it read.
        log: told what happens to it.

    Attributes:
        authenticates: the transports whose logons it decides on.
        entitles: the transports on which it says who may do what.
        checks: checks passwords.

    Raises:
        UsersFileError: it cannot be used.
    """

    def __init__(self, path: str, functions: Functions, desk: Desk, log: Log) -> None:
        self.path: Final = path
        self.authenticates: Final[set[str]] = set()
        self.entitles: Final[set[str]] = set()
        self.checks: Final = PasswordChecks(desk)
        self._functions = functions
        self._desk = desk
        self._log = log
        self._disconnect: Disconnect | None = None
        self._is_reading = False
        self._has_changed = False
        problems = Problems()
        users = read_users_file(path, functions, problems)
        self._warn(problems)
        if users is None:
            raise UsersFileError(_words(problems))
        self._take(users)

    def find(self, name: str) -> User | None:
        """A user; None if there is none of this name."""
        return self._users.users.get(name)

    @property
    def nobody(self) -> PasswordHash:
        """What passwords of users are compared with whom it does not have."""
        return self._nobody

    def watch(self, watcher: Watcher, disconnect: Disconnect) -> None:
        """Read the file again whenever it changes."""
        self._disconnect = disconnect
        watcher.watch(Path(self.path), lambda _change: self.look_again(), with_mode=True)

    def look_again(self) -> None:
        """Read the file again; if that is under way, once more after it."""
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

        self._desk.ask(read, give_up).when_there(self._come_to_know)

    def _come_to_know(self, answer: tuple[Users | None, Problems]) -> None:
        users, problems = answer
        self._is_reading = False
        self._warn(problems)
        if users is not None:
            self._replace(users)
        elif problems.has_errors:
            self._log.emit("25-0061", path=self.path, problem=_words(problems))
        if self._has_changed:
            self.look_again()

    def _replace(self, users: Users) -> None:
        changed, gone = users.changed_since(self._users)
        renewed = users.with_other_passwords(self._users)
        self._take(users)
        self._log.emit(
            "25-0060",
            path=self.path,
            users=len(users.users),
            changed=len(changed),
            gone=len(gone),
        )
        if self._disconnect is None:
            return
        if changed or gone:
            self._disconnect(self.entitles, changed | gone)
        if gone:
            self._disconnect(self.authenticates - self.entitles, gone)
        if renewed:
            self._disconnect((), renewed)

    def _take(self, users: Users) -> None:
        self._users = users
        self._nobody = hash_of_nothing(users.usual_cost)

    def _warn(self, problems: Problems) -> None:
        for problem in problems:
            if problem.severity is Severity.WARNING:
                self._log.emit("25-0062", problem=_plain(problem))


class UsersFiles:
    """The files of an instance: each is read once, however many transports name it."""

    def __init__(self) -> None:
        self._files: dict[str, UsersFile] = {}

    def open(self, path: str, functions: Functions, desk: Desk, log: Log) -> UsersFile:
        """Read a file, unless it has been read.

        Raises:
            UsersFileError: it cannot be used.
        """
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = UsersFile(path, functions, desk, log)
        return known

    def watch(self, watcher: Watcher, disconnect: Disconnect) -> None:
        """Read files again when they change.

        Args:
            watcher: tells when that is.
            disconnect: called for users who may do something else than before.
        """
        for file in self._files.values():
            file.watch(watcher, disconnect)


def _words(problems: Problems) -> str:
    """What is wrong, in one sentence."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    more = len(errors) - 1
    others = f" (and {more} more: amps-users check tells all)" if more else ""
    return _plain(errors[0]) + others


def _plain(problem: Problem) -> str:
    """A problem without its severity, which the log has."""
    subject = f"{problem.element}: " if problem.element else ""
    advice = f"; {problem.hint}" if problem.hint else ""
    return f"{problem.location}: {subject}{problem.message}{advice}"
