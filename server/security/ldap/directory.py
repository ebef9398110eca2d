"""Whether a directory accepts a user and a password, and what it calls the user.

    connect, StartTLS    (a)  as configured
    bind                 (b)  as the service account, or as nobody
    search BaseDN        (c)  for the one entry that has the user's name
    bind                 (d)  as that entry, with the password

All this is one connection for one logon, which is closed in the end. A directory accepts a name
without a password, and means by it that it does not know who that is (RFC 4513, section 5.1.2):
such a logon never gets here. The name that a user has from then on is the one that the directory
has, since to a directory `Ann ` and `ann` are the same, and to entitlement they are not.

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

from server.base.regular_files import read_regular
from server.security.ldap import messages
from server.security.ldap.ber import BerError
from server.security.ldap.connection import Connection, connected
from server.security.ldap.messages import Entry

SECONDS: Final = 10.0
"""How long a directory may take for one logon."""
_MOST_CONNECTIONS: Final = 32
_MOST_PASSWORD_BYTES: Final = 65_536
"""Bytes of the file that has the service account's password."""

_NO_SUCH_USER: Final = frozenset({19, 48, 49, 50, 53})
"""Answers to a bind that concern the user and not the directory, those of password policies too."""


class DirectoryError(Exception):
    """The directory cannot be asked, or gives no answer that can be used. The text says which."""


class NotAccepted(Exception):
    """The directory does not accept a user and a password. The text says why, for the log."""


class Encryption(StrEnum):
    """How the connection is made secret."""

    NONE = "none"
    START_TLS = "starttls"
    LDAPS = "ldaps"


@dataclass(frozen=True, slots=True)
class DirectorySpec:
    """Where a directory is, and how it is asked.

    Attributes:
        host: its host.
        port: its port.
        version: of the protocol, 2 or 3.
        base: the distinguished name of the entry below which users are.
        account: the distinguished name of the service account; empty for none.
        account_password_file: the file that has its password; empty for none.
        attributes: those of an entry that may have the user's name.
        encryption: how the connection is made secret.
        tls: what checks the directory's certificate; None without encryption.
    """

    host: str
    port: int
    version: int
    base: str
    account: str
    account_password_file: str
    attributes: tuple[str, ...]
    encryption: Encryption
    tls: ssl.SSLContext | None

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.host}:{self.port}"


class Directory:
    """Asks a directory. Used on one event loop.

    Args:
        spec: where it is.
    """

    def __init__(self, spec: DirectorySpec) -> None:
        self.spec: Final = spec
        self._turns = asyncio.Semaphore(_MOST_CONNECTIONS)
        # Version 2 knows no references: a directory that has some for others to ask says that its
        # results are partial (RFC 1777; RFC 3494 has what servers make of it).
        partial = {messages.PARTIAL_RESULTS} if spec.version == 2 else set()
        self._complete: Final = frozenset({messages.SUCCESS} | partial)

    async def check(self, user: str, password: str) -> str:
        """See whether the directory accepts a user with a password.

        Args:
            user: the name that the user gives, not empty.
            password: the password, not empty.

        Returns:
            The name that the directory has.

        Raises:
            NotAccepted: it does not accept them.
            DirectoryError: it cannot be told.
        """
        where = f"the directory {self.spec.where}"
        async with self._turns:
            try:
                async with asyncio.timeout(SECONDS):
                    return await self._check(user, password)
            except TimeoutError:
                raise DirectoryError(
                    f"{where} has not answered within {SECONDS:.0f} seconds"
                ) from None
            except BerError as problem:
                raise DirectoryError(f"{where} sends what is no LDAP: {problem}") from None
            except ssl.SSLCertVerificationError as problem:
                raise DirectoryError(
                    f"the certificate of {where} is not accepted: {problem.verify_message}"
                ) from None
            except (OSError, EOFError) as problem:
                raise DirectoryError(f"{where} cannot be asked: {self._words(problem)}") from None

    def _words(self, problem: Exception) -> str:
        """Why it cannot be asked, which not every error says."""
        said = getattr(problem, "strerror", None) or str(problem) or "it has ended the connection"
        if self.spec.encryption is Encryption.LDAPS and isinstance(
            problem, ssl.SSLError | EOFError | ConnectionError
        ):
            said += "; LDAP.Encryption ldaps needs a port that speaks TLS from the beginning"
        return said

    async def _check(self, user: str, password: str) -> str:
        account_password = await asyncio.to_thread(
            read_account_password, self.spec.account_password_file
        )
        async with self._connected() as connection:
            await self._introduce(connection, account_password)
            entry = await self._find(connection, user)
            name = self._name_of(entry, user)
            result = await connection.bind(self.spec.version, entry.name, password)
            if result.code in _NO_SUCH_USER:
                raise NotAccepted(f"{self.spec.where} refuses the bind as {entry.name!r}: {result}")
            if result.code != messages.SUCCESS:
                raise DirectoryError(
                    f"the directory {self.spec.where} answers the bind as {entry.name!r} with "
                    f"{result}"
                )
            return name

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        """A connection, encrypted as configured.

        Raises:
            DirectoryError: the directory refuses StartTLS.
        """
        spec = self.spec
        at_once = spec.tls if spec.encryption is Encryption.LDAPS else None
        async with connected(spec.host, spec.port, at_once) as connection:
            if spec.encryption is Encryption.START_TLS and spec.tls is not None:
                result = await connection.start_tls(spec.tls, spec.host)
                if result.code != messages.SUCCESS:
                    raise DirectoryError(f"the directory {spec.where} refuses StartTLS: {result}")
            yield connection

    async def _introduce(self, connection: Connection, password: str) -> None:
        """Log on as whoever may search.

        Raises:
            DirectoryError: that is not accepted.
        """
        spec = self.spec
        result = await connection.bind(spec.version, spec.account, password)
        if result.code == messages.SUCCESS:
            return
        who = f"as the service account {spec.account!r}" if spec.account else "without an account"
        hint = ""
        if result.code == messages.PROTOCOL_ERROR and spec.version == 2:
            hint = (
                ". Most directories speak version 3: set LDAP.ProtocolVersion to 3 (OpenLDAP takes "
                "version 2 with `allow bind_v2`)"
            )
        raise DirectoryError(f"the directory {spec.where} refuses the bind {who}: {result}{hint}")

    async def _find(self, connection: Connection, user: str) -> Entry:
        """Find the entry of a user.

        Raises:
            NotAccepted: there is none, or several.
            DirectoryError: it cannot be told.
        """
        spec = self.spec
        entries, result = await connection.search(spec.base, spec.attributes, user)
        below = f"below {spec.base!r} of {spec.where}"
        names = " or ".join(spec.attributes)
        if len(entries) > 1:
            raise NotAccepted(f"several entries {below} have that {names}")
        if result.code not in self._complete:
            hint = "" if spec.base else ". LDAP.BaseDN says where users are"
            raise DirectoryError(f"the search {below} ends with {result}{hint}")
        if not entries:
            raise NotAccepted(f"no entry {below} has that {names}")
        if not entries[0].name:
            raise DirectoryError(f"the directory {spec.where} gives an entry without a name")
        return entries[0]

    def _name_of(self, entry: Entry, user: str) -> str:
        """What the directory calls the user whom it has found by a name.

        Raises:
            NotAccepted: it has found them by a name that is not nearly the one given.
        """
        if user in entry.values:
            return user
        same = [value for value in entry.values if _folded(value) == _folded(user)]
        if not same or not same[0].isprintable():
            raise NotAccepted(
                f"{entry.name!r} of {self.spec.where} does not have the name that was given"
            )
        return same[0]


def read_account_password(path: str) -> str:
    """The password of the service account, which a file has; none without a file.

    Raises:
        DirectoryError: the file cannot be read, or is empty.
    """
    if not path:
        return ""
    try:
        found = read_regular(path, _MOST_PASSWORD_BYTES).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or "it is not UTF-8"
        raise DirectoryError(f"LDAP.ServiceAccountPasswordFile {path}: {why}") from None
    if not found:
        raise DirectoryError(f"LDAP.ServiceAccountPasswordFile {path}: it is empty")
    return found


def _folded(name: str) -> str:
    return " ".join(name.casefold().split())
