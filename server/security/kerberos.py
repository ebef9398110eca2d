"""Kerberos tokens: identify the user of a token, and prove this service's identity to the user.

The name of a user is the result of mapping the principal by this machine's Kerberos configuration
(`auth_to_local` in krb5.conf): without rules, the bare name in the default realm. A principal
without a mapping keeps its full name, `ann@ELSEWHERE.ORG`.

Source: AMPS User Guide, Multimethod Authentication Module, Kerberos Options; RFC 4559.
"""

from __future__ import annotations

import base64
import binascii
import os
from ctypes import byref, c_uint32
from typing import Final

from amperage.client.gssapi import (
    ACCEPT,
    ANONYMOUS,
    KERBEROS,
    SPNEGO,
    GssBuffer,
    GssError,
    GssHandle,
    SecurityContext,
    acquire,
    call,
    mechanisms,
    name_handle,
    principal_name,
    shown,
)
from server.util.safe_open import check_regular

_MAX_KEYTAB_BYTES: Final = 1_048_576
_INITIAL_TOKEN: Final = 0x60
"""The first byte of every initial token of the GSS-API (RFC 2743, section 3.1)."""
_LATER_TOKEN: Final = 0xA1
"""The first byte of later SPNEGO tokens (RFC 4178, section 4.2)."""
_MECHANISMS: Final = tuple(
    bytes((0x06, len(mechanism))) + mechanism for mechanism in (KERBEROS.elements, SPNEGO.elements)
)
_MAX_PREFIX_LENGTH: Final = 24
"""Length of the prefix of an initial token that contains its mechanism, in bytes."""
_NTLM: Final = b"NTLMSSP\x00"


class KerberosTokenError(ValueError):
    """A password is not a Kerberos token. The text gives the reason."""


def read_token(text: str) -> bytes:
    """Decode the base64 token that a client sends as its password.

    Raises:
        KerberosTokenError: it is not a Kerberos token.
    """
    try:
        token = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise KerberosTokenError("it is no Kerberos token, encoded as base64") from None
    if token.startswith(_NTLM):
        raise KerberosTokenError(
            "it is a token of NTLM, and Kerberos is required: browsers and programs send one where "
            "they have no Kerberos ticket for the name in the URL"
        )
    if not token or token[0] not in (_INITIAL_TOKEN, _LATER_TOKEN):
        raise KerberosTokenError("it is no Kerberos token")
    return token


def is_initial_token(text: str) -> bool:
    """Return whether a password is the first token of a Kerberos logon, so no user's password."""
    try:
        token = read_token(text)
    except KerberosTokenError:
        return False
    return any(mechanism in token[:_MAX_PREFIX_LENGTH] for mechanism in _MECHANISMS)


def check_keytab(keytab: str) -> None:
    """Check a keytab, so that the Kerberos library, which opens any path, does not block on it.

    Args:
        keytab: the file; if it does not exist, the library reports that.

    Raises:
        GssError: it is no regular file.
    """
    path = keytab.removeprefix("FILE:")
    if not os.path.exists(path):
        return
    try:
        check_regular(path, _MAX_KEYTAB_BYTES)
    except OSError as problem:
        raise GssError(f"the keytab {path}: {problem.strerror or problem}") from None


class KerberosService:
    """The service that tokens are issued for.

    Args:
        spn: the name of the service, such as `AMPS/host.domain.com`; the default realm if it names
            none.
        keytab: the file with its keys.
    """

    def __init__(self, spn: str, keytab: str) -> None:
        self._spn: Final = spn
        self._keytab: Final = keytab

    def check_keytab(self) -> None:
        """Check that tokens can be accepted.

        Raises:
            GssError: there is no Kerberos, or the keytab has no key for the service.
        """
        self._acquire()

    def make_acceptor(self) -> KerberosAcceptor:
        """Begin to accept a user, with the current content of the keytab.

        Raises:
            GssError: no user can be accepted.
        """
        return KerberosAcceptor(self._acquire())

    def _acquire(self) -> GssHandle:
        check_keytab(self._keytab)
        store = {"keytab": f"FILE:{self._keytab}"}
        accepted = mechanisms(KERBEROS, SPNEGO)
        credential = acquire(principal_name(self._spn), ACCEPT, store, accepted)
        inside = mechanisms(KERBEROS)
        call("gss_set_neg_mechs", credential.pointer, byref(inside))
        return credential


class KerberosAcceptor:
    """A logon by tokens.

    Args:
        credential: proves the identity of the service.

    Attributes:
        is_complete: whether the user is known.
    """

    def __init__(self, credential: GssHandle) -> None:
        self._credential = credential
        self._name = name_handle()
        self._flags = c_uint32()
        self._context = SecurityContext(self._advance)

    @property
    def is_complete(self) -> bool:
        """True if the user is known."""
        return self._context.is_complete

    def step(self, token: bytes) -> bytes:
        """Process a token, and return the answer to it, which may be empty.

        Raises:
            GssError: it is not accepted.
        """
        answer = self._context.process_token(token)
        if self.is_complete and self._flags.value & ANONYMOUS:
            raise GssError("the ticket is that of an anonymous user")
        return answer

    @property
    def user(self) -> str:
        """The name of the user that has logged on.

        Raises:
            GssError: it is unknown, or not printable.
        """
        local = GssBuffer()
        try:
            call("gss_localname", self._name.pointer, byref(KERBEROS), byref(local))
        except GssError:  # no rule matches this principal
            buffer = shown(self._name)
        else:
            buffer = local.take_bytes().decode(errors="replace")
        if not buffer or not buffer.isprintable():
            raise GssError(f"{buffer!r} is no name of a user")
        return buffer

    def _advance(self, context: GssHandle, token: GssBuffer, output: GssBuffer) -> int:
        return call(
            "gss_accept_sec_context",
            byref(context.pointer),
            self._credential.pointer,
            byref(token),
            None,
            byref(self._name.pointer),
            None,
            byref(output),
            byref(self._flags),
            None,
            None,
        )
