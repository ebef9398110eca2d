"""Authentication with a Kerberos ticket, from `kinit` or a keytab."""

from __future__ import annotations

import base64
import binascii
import os

from amperage.client.authentication import Credentials
from amperage.client.errors import CredentialsError
from amperage.client.gssapi import GssError, KeytabIdentity, SecurityContext, initiate


class KerberosAuthenticator:
    """Sends a Kerberos token as the password, and verifies the server's identity in turn.

    Use an instance for one client only: it keeps the state of a logon. A call may block, because a
    missing ticket is requested from the KDC.

    Args:
        spn: the service principal name of the server, `AMPS/host.domain.com`; `AMPS/host:port` is
            the same service, and `AMPS/host@REALM` also selects the realm.
        keytab: a file with the keys of the user to log on as; None for the owner of the ticket in
            the credential cache (`kinit`).
    """

    def __init__(self, spn: str, keytab: str | None = None) -> None:
        self._spn = spn
        self._identity = None if keytab is None else KeytabIdentity(keytab)
        self._context: SecurityContext | None = None

    def authenticate(self, given: Credentials) -> Credentials:
        """Begin a logon; return the first token.

        Raises:
            CredentialsError: there is no ticket, or none for the service.
        """
        try:
            credential = None if self._identity is None else self._identity.acquire()
            self._context = initiate(self._spn, credential)
        except GssError as problem:
            raise self._credentials_error(problem) from None
        return Credentials(given.user, self._process_token(b""))

    def retry(self, answered: Credentials) -> Credentials:
        """Return the token that answers a token of the server.

        Raises:
            CredentialsError: the server does not prove its identity.
        """
        return Credentials(answered.user, self._process_token(_token(answered)))

    def completed(self, answered: Credentials) -> None:
        """Verify the server's identity, after it has accepted the logon.

        Raises:
            CredentialsError: the server does not prove its identity.
        """
        token = _token(answered)
        if token and not self._is_complete:
            self._process_token(token)
        if not self._is_complete:
            raise self._credentials_error("the server has not proved its identity")

    @property
    def _is_complete(self) -> bool:
        return self._context is not None and self._context.is_complete

    def _process_token(self, token: bytes) -> str:
        if self._context is None:
            raise self._credentials_error("no logon has begun")
        try:
            return base64.b64encode(self._context.process_token(token)).decode()
        except GssError as problem:
            raise self._credentials_error(problem) from None

    def _credentials_error(self, problem: object) -> CredentialsError:
        return CredentialsError(f"Kerberos, {self._spn}: {problem}")


def from_environment() -> KerberosAuthenticator:
    """Return an authenticator for the service AMPS_KERBEROS_SPN.

    It uses the keytab AMPS_KERBEROS_KEYTAB if that is set. For
    `spark -authenticator amperage.client.kerberos:from_environment`.
    """
    return KerberosAuthenticator(
        os.environ.get("AMPS_KERBEROS_SPN", ""), os.environ.get("AMPS_KERBEROS_KEYTAB") or None
    )


def _token(answered: Credentials) -> bytes:
    """Return the server's token; empty if there is none."""
    try:
        return base64.b64decode(answered.password or "", validate=True)
    except (binascii.Error, ValueError):
        raise CredentialsError("Kerberos: the server's token is not base64") from None
