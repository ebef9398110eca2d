"""Logs on with a Kerberos ticket, such as `kinit` gets, or one of a keytab."""

from __future__ import annotations

import base64
import binascii
import os

from amperage.client.authentication import Credentials
from amperage.client.errors import CredentialsError
from amperage.client.gssapi import GssError, KeytabIdentity, SecurityContext, initiate


class KerberosAuthenticator:
    """Shows a token in place of a password, and has the server prove who it is.

    One is for one client: it keeps what a logon has come to. Making a token may take a while, for a
    ticket that is not there has to be got from the KDC.

    Args:
        spn: the service of the server, `AMPS/host.domain.com`; `AMPS/host:port` stands for the same
            service, and `AMPS/host@REALM` says which realm it belongs to.
        keytab: a file with the keys of whom to log on as; None for whoever has got a ticket.
    """

    def __init__(self, spn: str, keytab: str | None = None) -> None:
        self._spn = spn
        self._identity = None if keytab is None else KeytabIdentity(keytab)
        self._context: SecurityContext | None = None

    def authenticate(self, given: Credentials) -> Credentials:
        """The first token.

        Raises:
            CredentialsError: there is no ticket, or none for that service.
        """
        try:
            credential = None if self._identity is None else self._identity.acquire()
            self._context = initiate(self._spn, credential)
        except GssError as problem:
            raise self._failed(problem) from None
        return Credentials(given.user, self._step(b""))

    def retry(self, answered: Credentials) -> Credentials:
        """The token that answers to one of the server's.

        Raises:
            CredentialsError: the server does not prove to be that service.
        """
        return Credentials(answered.user, self._step(_token(answered)))

    def completed(self, answered: Credentials) -> None:
        """The server has accepted the logon: see that it is who it is to be.

        Raises:
            CredentialsError: it does not prove that.
        """
        token = _token(answered)
        if token and not self._is_complete:
            self._step(token)
        if not self._is_complete:
            raise self._failed("the server has not proved who it is")

    @property
    def _is_complete(self) -> bool:
        return self._context is not None and self._context.is_complete

    def _step(self, token: bytes) -> str:
        if self._context is None:
            raise self._failed("no logon has begun")
        try:
            return base64.b64encode(self._context.step(token)).decode()
        except GssError as problem:
            raise self._failed(problem) from None

    def _failed(self, problem: object) -> CredentialsError:
        return CredentialsError(f"Kerberos, {self._spn}: {problem}")


def from_environment() -> KerberosAuthenticator:
    """Make one for the service AMPS_KERBEROS_SPN, with the keytab AMPS_KERBEROS_KEYTAB if set.

    `spark -authenticator amperage.client.kerberos:from_environment` calls it.
    """
    return KerberosAuthenticator(
        os.environ.get("AMPS_KERBEROS_SPN", ""), os.environ.get("AMPS_KERBEROS_KEYTAB") or None
    )


def _token(answered: Credentials) -> bytes:
    """The token of the server; empty for none."""
    try:
        return base64.b64decode(answered.password or "", validate=True)
    except (binascii.Error, ValueError):
        raise CredentialsError("Kerberos: the server's token is not base64") from None
