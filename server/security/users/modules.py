"""libamperage_users.so: authentication and entitlement by a users file. An extension to AMPS.

Authentication takes a name and a password. For an unknown user, the time and the reply are the same
as for a wrong password. Entitlement has the permissions of its users, also where another module
authenticates them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.security.authentication import Admission
from server.security.deferred import mapped
from server.security.permissions import ConstantPermissions, Permit
from server.security.scram import ITERATIONS
from server.security.scram_logon import ScramLogon
from server.security.users.password_hashes import MAX_PASSWORD_SIZE

if TYPE_CHECKING:
    from server.security.authentication import LogonCredentials, LogonExchange
    from server.security.deferred import AnswerOrFuture
    from server.security.permissions import Permissions
    from server.security.scram import ScramVerifier
    from server.security.users.files import UsersFile
    from server.util.log_protocol import ServerLog

LIBRARY: Final = "libamperage_users.so"
FILE_NAME: Final = "FileName"

_WRONG: Final = Admission(False, "", "wrong user or password")
_EMPTY: Final = Admission(False, "", "a user name and a password are required")
_UNDECIDED: Final = Admission(
    False, "", "the credentials cannot be checked at the moment", undecided=True
)


@dataclass(frozen=True, slots=True)
class UsersAuthenticator:
    """Authenticates by the passwords of a file.

    Attributes:
        file: the file.
        log: receives an entry when a password cannot be checked.
    """

    file: UsersFile
    log: ServerLog

    def begin_logon(self) -> LogonExchange:
        """See `LogonAuthenticator`."""
        return self

    def begin_scram(self, user: str, channel_binding: bytes) -> LogonExchange | None:
        """See `LogonAuthenticator`. Unknown users log on as most of the known ones."""
        entry = self.file.find(user)
        has_password = entry is not None and entry.password is not None
        verifier = self._find_verifier(user)
        iterations = self.file.usual_iterations
        if verifier is None and (has_password or not iterations):
            return None
        return ScramLogon(self._find_verifier, channel_binding, iterations or ITERATIONS)

    def forget(self) -> None:
        """See `LogonAuthenticator`."""
        self.file.password_checks.forget()
        self.file.reload()

    def authenticate(self, credentials: LogonCredentials) -> AnswerOrFuture[Admission]:
        """See `LogonExchange`."""
        user, password = credentials.user, credentials.password
        if not user or not password:
            return _EMPTY
        if len(password) > MAX_PASSWORD_SIZE:
            return _WRONG
        entry = self.file.find(user)
        expected = entry.password if entry is not None else None
        compared = self.file.decoy_hash if expected is None else expected
        right = self.file.password_checks.check_password(credentials, compared, self._log_problem)

        def decide(matches: bool | None) -> Admission:
            if matches is None:
                return _UNDECIDED
            now = self.file.find(user)  # it may have changed since
            if not matches or expected is None or now is None or now.password != expected:
                return _WRONG
            return Admission(True, user, "")

        return mapped(right, decide)

    def explain_logon(self, user: str) -> tuple[bool, str, str]:
        """Return whether a user can log on, the user name of the logon, and the reason."""
        entry = self.file.find(user)
        if entry is None:
            return False, "", f"{self.file.path} has no user {user!r}"
        if entry.password is None:
            return False, "", f"{entry.location}: users.{user} has no password"
        return True, user, f"{entry.location}: users.{user} has a password"

    def _find_verifier(self, user: str) -> ScramVerifier | None:
        entry = self.file.find(user)
        return None if entry is None else entry.scram

    def _log_problem(self, problem: str) -> None:
        self.log.emit("25-0003", module=LIBRARY, problem=problem)


@dataclass(frozen=True, slots=True)
class UsersEntitlement:
    """Returns the permissions of the users of a file.

    Attributes:
        file: the file.
    """

    file: UsersFile

    def acquire_permissions(self, user: str) -> Permissions:
        """See `Entitlement`."""
        entry = self.file.find(user)
        if entry is not None:
            return entry.permissions
        description = f"no user {user!r}" if user else "no user without a name"
        return ConstantPermissions(Permit(False, rule=f"{self.file.path} has {description}"))

    def forget(self, user: str | None = None) -> None:
        """See `Entitlement`."""
        if user is None:
            self.file.reload()
