"""Checks a user and a password with a directory, and returns the directory's name of the user.

    connect, StartTLS    (a)  as configured
    bind                 (b)  as the service account, or anonymously
    search BaseDN        (c)  for the one entry that has the user's name
    bind                 (d)  as that entry, with the password

Each logon has a connection of its own, which is closed at the end. A directory accepts a name
without a password as an anonymous bind (RFC 4513, section 5.1.2): such a logon never gets here. The
user's name from then on is the one in the directory, since `Ann ` and `ann` are the same to a
directory, but not to entitlement.

Source: AMPS User Guide, Multimethod Authentication Module, LDAP Options; RFC 4511, RFC 4513.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from server.security.ldap import messages
from server.security.ldap.ber import BerError
from server.security.ldap.connection import LdapConnection, connected
from server.security.ldap.messages import LdapEntry
from server.util.safe_open import read_regular

SECONDS: Final = 10.0
"""Timeout of the directory for one logon."""
_MAX_CONNECTIONS: Final = 32
_MAX_PASSWORD_BYTES: Final = 65_536
"""Size limit of the service account's password file, in bytes."""

_NO_SUCH_USER: Final = frozenset({19, 48, 49, 50, 53})
"""Result codes of a bind about the user, not the directory; those of password policies included."""


class DirectoryError(Exception):
    """The directory cannot be queried, or gives no usable answer. The text names it."""


class DirectoryLogonError(Exception):
    """The directory refuses a user and a password. The text gives the reason, for the log."""


class LdapEncryption(StrEnum):
    """How the connection is encrypted."""

    NONE = "none"
    START_TLS = "starttls"
    LDAPS = "ldaps"


@dataclass(frozen=True, slots=True)
class LdapDirectorySpec:
    """The configuration of a directory.

    Attributes:
        host: its host.
        port: its port.
        version: of the protocol, 2 or 3.
        base: the distinguished name of the entry below which users are.
        account: the distinguished name of the service account; empty for none.
        account_password_file: the file that has its password; empty for none.
        attributes: those of an entry that may have the user's name.
        encryption: how the connection is encrypted.
        tls: verifies the directory's certificate; None without encryption.
    """

    host: str
    port: int
    version: int
    base: str
    account: str
    account_password_file: str
    attributes: tuple[str, ...]
    encryption: LdapEncryption
    tls: ssl.SSLContext | None

    @property
    def authority(self) -> str:
        """Host and port, for people."""
        return f"{self.host}:{self.port}"


class LdapDirectory:
    """Authenticates users by a directory. Used on one event loop.

    Args:
        spec: its configuration.
    """

    def __init__(self, spec: LdapDirectorySpec) -> None:
        self.spec: Final = spec
        self._semaphore = asyncio.Semaphore(_MAX_CONNECTIONS)
        # Version 2 has no referrals: a directory that would send some returns the code for partial
        # results instead (RFC 1777; RFC 3494 describes how servers handle it).
        partial = {messages.PARTIAL_RESULTS} if spec.version == 2 else set()
        self._success_codes: Final = frozenset({messages.SUCCESS} | partial)

    async def authenticate(self, user: str, password: str) -> str:
        """Check a user and a password with the directory.

        Args:
            user: the name from the user, not empty.
            password: the password, not empty.

        Returns:
            The user's name in the directory.

        Raises:
            DirectoryLogonError: it does not accept them.
            DirectoryError: they cannot be checked.
        """
        where = f"the directory {self.spec.authority}"
        async with self._semaphore:
            try:
                async with asyncio.timeout(SECONDS):
                    return await self._authenticate(user, password)
            except TimeoutError:
                raise DirectoryError(
                    f"{where} has not answered within {SECONDS:.0f} seconds"
                ) from None
            except BerError as problem:
                raise DirectoryError(f"{where} sends data that are not LDAP: {problem}") from None
            except ssl.SSLCertVerificationError as problem:
                raise DirectoryError(
                    f"the certificate of {where} is not accepted: {problem.verify_message}"
                ) from None
            except (OSError, EOFError) as problem:
                raise DirectoryError(
                    f"{where} cannot be asked: {self._describe_problem(problem)}"
                ) from None

    def _describe_problem(self, problem: Exception) -> str:
        """Return the reason of a failure, which not every exception contains."""
        description = (
            getattr(problem, "strerror", None) or str(problem) or "it has ended the connection"
        )
        if self.spec.encryption is LdapEncryption.LDAPS and isinstance(
            problem, ssl.SSLError | EOFError | ConnectionError
        ):
            description += "; LDAP.Encryption ldaps needs a port that speaks TLS from the beginning"
        return description

    async def _authenticate(self, user: str, password: str) -> str:
        account_password = await asyncio.to_thread(
            read_account_password, self.spec.account_password_file
        )
        async with self._connect() as connection:
            await self._bind_for_search(connection, account_password)
            entry = await self._find_entry(connection, user)
            name = self._name_of(entry, user)
            result = await connection.bind(self.spec.version, entry.name, password)
            if result.code in _NO_SUCH_USER:
                raise DirectoryLogonError(
                    f"{self.spec.authority} refuses the bind as {entry.name!r}: {result}"
                )
            if result.code != messages.SUCCESS:
                raise DirectoryError(
                    f"the directory {self.spec.authority} answers the bind as {entry.name!r} with "
                    f"{result}"
                )
            return name

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[LdapConnection]:
        """Connect, with encryption as configured.

        Raises:
            DirectoryError: the directory refuses StartTLS.
        """
        spec = self.spec
        at_once = spec.tls if spec.encryption is LdapEncryption.LDAPS else None
        async with connected(spec.host, spec.port, at_once) as connection:
            if spec.encryption is LdapEncryption.START_TLS and spec.tls is not None:
                result = await connection.start_tls(spec.tls, spec.host)
                if result.code != messages.SUCCESS:
                    raise DirectoryError(
                        f"the directory {spec.authority} refuses StartTLS: {result}"
                    )
            yield connection

    async def _bind_for_search(self, connection: LdapConnection, password: str) -> None:
        """Bind as the service account, or anonymously, for the search.

        Raises:
            DirectoryError: the bind is refused.
        """
        spec = self.spec
        result = await connection.bind(spec.version, spec.account, password)
        if result.code == messages.SUCCESS:
            return
        identity = (
            f"as the service account {spec.account!r}" if spec.account else "without an account"
        )
        hint = ""
        if result.code == messages.PROTOCOL_ERROR and spec.version == 2:
            hint = (
                ". Most directories speak version 3: set LDAP.ProtocolVersion to 3 (OpenLDAP takes "
                "version 2 with `allow bind_v2`)"
            )
        raise DirectoryError(
            f"the directory {spec.authority} refuses the bind {identity}: {result}{hint}"
        )

    async def _find_entry(self, connection: LdapConnection, user: str) -> LdapEntry:
        """Find the entry of a user.

        Raises:
            DirectoryLogonError: there is none, or several.
            DirectoryError: the search failed.
        """
        spec = self.spec
        entries, result = await connection.search(spec.base, spec.attributes, user)
        below = f"below {spec.base!r} of {spec.authority}"
        names = " or ".join(spec.attributes)
        if len(entries) > 1:
            raise DirectoryLogonError(f"several entries {below} have that {names}")
        if result.code not in self._success_codes:
            hint = "" if spec.base else ". LDAP.BaseDN is the place of users"
            raise DirectoryError(f"the search {below} ends with {result}{hint}")
        if not entries:
            raise DirectoryLogonError(f"no entry {below} has that {names}")
        if not entries[0].name:
            raise DirectoryError(f"the directory {spec.authority} gives an entry without a name")
        return entries[0]

    def _name_of(self, entry: LdapEntry, user: str) -> str:
        """Return the directory's name of the user of an entry.

        Raises:
            DirectoryLogonError: the entry has no name that is nearly the one given.
        """
        if user in entry.values:
            return user
        same = [value for value in entry.values if _folded(value) == _folded(user)]
        if not same or not same[0].isprintable():
            raise DirectoryLogonError(
                f"{entry.name!r} of {self.spec.authority} does not have the name that was given"
            )
        return same[0]


def read_account_password(path: str) -> str:
    """Return the service account's password from a file; empty without a file.

    Raises:
        DirectoryError: the file cannot be read, or is empty.
    """
    if not path:
        return ""
    try:
        password = read_regular(path, _MAX_PASSWORD_BYTES).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8"
        raise DirectoryError(f"LDAP.ServiceAccountPasswordFile {path}: {why}") from None
    if not password:
        raise DirectoryError(f"LDAP.ServiceAccountPasswordFile {path}: it is empty")
    return password


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
