"""Kerberos tokens: who shows one, and what proves to them that this is the service they want.

A user is called what the Kerberos configuration of this machine makes of the principal
(`auth_to_local` in krb5.conf): without rules that is the name alone in the default realm. A
principal that it makes nothing of keeps its full name, `ann@ELSEWHERE.ORG`.

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
    Buffer,
    GssError,
    Handle,
    SecurityContext,
    acquire,
    call,
    mechanisms,
    name_handle,
    principal_name,
    shown,
)
from server.base.regular_files import check_regular

_MOST_KEYTAB_BYTES: Final = 1_048_576
_INITIAL_TOKEN: Final = 0x60
"""What every first token of the GSS-API begins with (RFC 2743, section 3.1)."""
_LATER_TOKEN: Final = 0xA1
"""What further tokens of SPNEGO begin with (RFC 4178, section 4.2)."""
_MECHANISMS: Final = tuple(
    bytes((0x06, len(mechanism))) + mechanism for mechanism in (KERBEROS.elements, SPNEGO.elements)
)
_LONGEST_PREFIX: Final = 24
"""Bytes at the beginning of a first token among which its mechanism is named."""
_NTLM: Final = b"NTLMSSP\x00"


class TokenError(ValueError):
    """What was shown is no token of Kerberos. The text says what it is."""


def read_token(text: str) -> bytes:
    """The token that stands in place of a password, encoded as base64.

    Raises:
        TokenError: there is none.
    """
    try:
        token = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise TokenError("it is no Kerberos token, encoded as base64") from None
    if token.startswith(_NTLM):
        raise TokenError(
            "it is a token of NTLM, and Kerberos is required: browsers and programs send one where "
            "they have no Kerberos ticket for the name in the URL"
        )
    if not token or token[0] not in (_INITIAL_TOKEN, _LATER_TOKEN):
        raise TokenError("it is no Kerberos token")
    return token


def begins_logon(text: str) -> bool:
    """Whether a password is the first token of a logon by Kerberos, and so nobody's password."""
    try:
        token = read_token(text)
    except TokenError:
        return False
    return any(mechanism in token[:_LONGEST_PREFIX] for mechanism in _MECHANISMS)


def check_keytab(keytab: str) -> None:
    """See that the library of Kerberos, which opens whatever it is given, need not wait for it.

    Args:
        keytab: the file; if there is none, the library says so.

    Raises:
        GssError: it is no regular file.
    """
    path = keytab.removeprefix("FILE:")
    if not os.path.exists(path):
        return
    try:
        check_regular(path, _MOST_KEYTAB_BYTES)
    except OSError as problem:
        raise GssError(f"the keytab {path}: {problem.strerror or problem}") from None


class Service:
    """What tokens are meant for.

    Args:
        spn: the name of the service, such as `AMPS/host.domain.com`; the default realm if it names
            none.
        keytab: the file with its keys.
    """

    def __init__(self, spn: str, keytab: str) -> None:
        self._spn: Final = spn
        self._keytab: Final = keytab

    def check(self) -> None:
        """See that tokens can be accepted.

        Raises:
            GssError: they cannot: there is no Kerberos, or the keytab has no key for the service.
        """
        self._acquire()

    def begin(self) -> Acceptance:
        """Begin to accept a user. The keytab is read anew.

        Raises:
            GssError: nobody can be accepted.
        """
        return Acceptance(self._acquire())

    def _acquire(self) -> Handle:
        check_keytab(self._keytab)
        store = {"keytab": f"FILE:{self._keytab}"}
        accepted = mechanisms(KERBEROS, SPNEGO)
        credential = acquire(principal_name(self._spn), ACCEPT, store, accepted)
        inside = mechanisms(KERBEROS)
        call("gss_set_neg_mechs", credential.pointer, byref(inside))
        return credential


class Acceptance:
    """A logon by tokens.

    Args:
        credential: what the service proves its identity with.

    Attributes:
        is_complete: whether it is known who the user is.
    """

    def __init__(self, credential: Handle) -> None:
        self._credential = credential
        self._name = name_handle()
        self._flags = c_uint32()
        self._context = SecurityContext(self._advance)

    @property
    def is_complete(self) -> bool:
        """Whether it is known who the user is."""
        return self._context.is_complete

    def step(self, token: bytes) -> bytes:
        """Take a token, and give what to answer; it may be empty.

        Raises:
            GssError: it is not accepted.
        """
        answer = self._context.step(token)
        if self.is_complete and self._flags.value & ANONYMOUS:
            raise GssError("the ticket is that of an anonymous user")
        return answer

    @property
    def user(self) -> str:
        """Who has logged on.

        Raises:
            GssError: nobody knows, or they have a name that nobody can read.
        """
        local = Buffer()
        try:
            call("gss_localname", self._name.pointer, byref(KERBEROS), byref(local))
        except GssError:  # no rule concerns this principal
            found = shown(self._name)
        else:
            found = local.take().decode(errors="replace")
        if not found or not found.isprintable():
            raise GssError(f"{found!r} is no name of a user")
        return found

    def _advance(self, context: Handle, token: Buffer, said: Buffer) -> int:
        return call(
            "gss_accept_sec_context",
            byref(context.pointer),
            self._credential.pointer,
            byref(token),
            None,
            byref(self._name.pointer),
            None,
            byref(said),
            byref(self._flags),
            None,
            None,
        )
