"""The functions of MIT Kerberos's GSS-API that logons need, called with ctypes.

    import_name -> acquire -> SecurityContext.step, a token in, a token out, until it is complete

Calls may block: they read files, and contact a KDC. They release Python's global lock meanwhile.
The library reads the realms and KDCs from /etc/krb5.conf, or from the file named by KRB5_CONFIG.

Source: RFC 2744 (C bindings), RFC 4121 (Kerberos), RFC 4178 (SPNEGO), RFC 5588 (credential stores).
"""

from __future__ import annotations

import ctypes
import uuid
import weakref
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_int, c_size_t, c_uint32, c_void_p
from functools import lru_cache
from typing import Final

LIBRARY: Final = "libgssapi_krb5.so.2"

ACCEPT: Final = 2
INITIATE: Final = 1
ANONYMOUS: Final = 64
"""A flag of contexts: the peer is anonymous (RFC 2744, GSS_C_ANON_FLAG)."""
_MUTUAL: Final = 2

_CONTINUE_NEEDED: Final = 1
_ERRORS: Final = 0xFFFF0000
_FOREVER: Final = 0xFFFFFFFF
_GSS_CODE: Final = 1
_MECHANISM_CODE: Final = 2


class GssError(Exception):
    """Kerberos is unavailable or has rejected a request. The text has the reason, no secrets."""


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", ctypes.c_char_p))


class OidSet(ctypes.Structure):
    """A set of mechanisms."""

    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class GssBuffer(ctypes.Structure):
    """A buffer for input, or for output of the library, which `take_bytes` returns and frees."""

    _fields_ = (("length", c_size_t), ("value", c_void_p))
    memory_owner: object

    @classmethod
    def from_bytes(cls, content: bytes) -> GssBuffer:
        """Return a buffer for input."""
        memory = ctypes.create_string_buffer(content, len(content) or 1)
        buffer = cls(len(content), ctypes.addressof(memory))
        buffer.memory_owner = memory  # keeps the memory alive as long as the buffer
        return buffer

    def take_bytes(self) -> bytes:
        """Return the output, and free the library's memory."""
        output = ctypes.string_at(self.value, self.length) if self.value else b""
        library().gss_release_buffer(byref(c_uint32()), byref(self))
        return output


class _Element(ctypes.Structure):
    _fields_ = (("key", ctypes.c_char_p), ("value", ctypes.c_char_p))


class _Store(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Element)))


def _oid(elements: bytes) -> _Oid:
    return _Oid(len(elements), elements)


KERBEROS: Final = _oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
SPNEGO: Final = _oid(b"\x2b\x06\x01\x05\x05\x02")
_PRINCIPAL_NAME: Final = _oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01")
_HOST_BASED_NAME: Final = _oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")

_P = c_void_p
_FUNCTIONS: Final[Mapping[str, tuple[object, ...]]] = {
    "gss_accept_sec_context": (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P),
    "gss_acquire_cred_from": (_P, _P, c_uint32, _P, c_int, _P, _P, _P, _P),
    "gss_delete_sec_context": (_P, _P, _P),
    "gss_display_name": (_P, _P, _P, _P),
    "gss_display_status": (_P, c_uint32, c_int, _P, _P, _P),
    "gss_import_name": (_P, _P, _P, _P),
    "gss_init_sec_context": (_P, _P, _P, _P, _P, c_uint32, c_uint32, _P, _P, _P, _P, _P, _P),
    "gss_inquire_cred": (_P, _P, _P, _P, _P, _P),
    "gss_localname": (_P, _P, _P, _P),
    "gss_release_buffer": (_P, _P),
    "gss_release_cred": (_P, _P),
    "gss_release_name": (_P, _P),
    "gss_set_neg_mechs": (_P, _P, _P),
}
"""The functions used, with the types of their arguments; all return a status."""


@lru_cache
def library() -> ctypes.CDLL:
    """Return the system's library.

    Raises:
        GssError: the library is missing or too old.
    """
    try:
        cdll = ctypes.CDLL(LIBRARY)
        for name, arguments in _FUNCTIONS.items():
            function = getattr(cdll, name)
            function.argtypes, function.restype = arguments, c_uint32
    except (OSError, AttributeError) as problem:
        raise GssError(
            f"Kerberos needs {LIBRARY} of MIT Kerberos 1.11 or later "
            f"(Debian: libgssapi-krb5-2): {problem}"
        ) from None
    return cdll


def call(name: str, *arguments: object) -> int:
    """Call a function of the library.

    Args:
        name: the name of the function.
        arguments: the arguments after the minor status.

    Returns:
        The major status: zero, or supplementary bits such as `_CONTINUE_NEEDED`.

    Raises:
        GssError: the call failed.
    """
    minor = c_uint32()
    major: int = getattr(library(), name)(byref(minor), *arguments)
    if major & _ERRORS:
        raise GssError(_explain(major, minor.value))
    return major


def _explain(major: int, minor: int) -> str:
    """Return the text of an error: the general one, and the mechanism's if it has one."""
    general = _words(major, _GSS_CODE)
    special = _words(minor, _MECHANISM_CODE) if minor else ""
    return f"{general}: {special}" if special else general


def _words(status: int, kind: int) -> str:
    texts: list[str] = []
    more = c_uint32()
    while len(texts) < 8:  # there are one or two
        text = GssBuffer()
        problem = library().gss_display_status(
            byref(c_uint32()), status, kind, byref(KERBEROS), byref(more), byref(text)
        )
        if problem & _ERRORS:
            break
        texts.append(text.take_bytes().decode(errors="replace").strip().rstrip("."))
        if not more.value:
            break
    return "; ".join(texts)


class GssHandle:
    """A handle of the library, released when this object is garbage-collected.

    Args:
        release: the function that releases the handle.
        arguments: the arguments of that function after the handle.

    Attributes:
        pointer: the pointer to pass to functions.
    """

    def __init__(self, release: str, *arguments: object) -> None:
        self.pointer: Final = c_void_p()
        weakref.finalize(self, _give_back, self.pointer, release, arguments)


def _give_back(pointer: c_void_p, release: str, arguments: tuple[object, ...]) -> None:
    if pointer.value:
        getattr(library(), release)(byref(c_uint32()), byref(pointer), *arguments)


def name_handle() -> GssHandle:
    """Return a handle for a name."""
    return GssHandle("gss_release_name")


def principal_name(principal: str) -> GssHandle:
    """Return the name of a principal, taken verbatim; the default realm is added if missing."""
    return _import_name(principal, _PRINCIPAL_NAME)


def service_name(spn: str) -> GssHandle:
    """Return the name of a service: `AMPS/host`, `AMPS/host:port` or `AMPS/host@REALM`.

    Without a realm, the library completes the host name and finds its realm as set in krb5.conf.

    Raises:
        GssError: the text is not such a name.
    """
    service, slash, host_and_realm = spn.partition("/")
    if not service or not slash or not host_and_realm:
        raise GssError(f"{spn!r} is no name of a service: expected for example AMPS/host.domain")
    if "@" in host_and_realm:
        return principal_name(spn)
    host, _, port = host_and_realm.rpartition(":")
    return _import_name(
        f"{service}@{host if port.isdigit() and host else host_and_realm}", _HOST_BASED_NAME
    )


def _import_name(text: str, form: _Oid) -> GssHandle:
    name = name_handle()
    given = GssBuffer.from_bytes(text.encode(errors="replace"))
    call("gss_import_name", byref(given), byref(form), byref(name.pointer))
    return name


def shown(name: GssHandle) -> str:
    """Return a name as text, `user@REALM`.

    Raises:
        GssError: the name has no text.
    """
    text = GssBuffer()
    call("gss_display_name", name.pointer, byref(text), None)
    return text.take_bytes().decode(errors="replace")


def mechanisms(*mechanisms: _Oid) -> OidSet:
    """Return a set of mechanisms for input."""
    elements = (_Oid * len(mechanisms))(*mechanisms)
    return OidSet(len(mechanisms), elements)


def acquire(
    name: GssHandle | None, usage: int, store: Mapping[str, str], accepted: OidSet | None = None
) -> GssHandle:
    """Acquire a credential.

    Args:
        name: the owner; None for the only one, or the first.
        usage: INITIATE or ACCEPT.
        store: the location of the credential, such as {"keytab": path}.
        accepted: the mechanisms that may use it; None for Kerberos.

    Raises:
        GssError: the credential is not available.
    """
    pairs = [_Element(key.encode(), value.encode()) for key, value in store.items()]
    elements = (_Element * len(pairs))(*pairs)
    where = _Store(len(pairs), elements)
    credential = GssHandle("gss_release_cred")
    call(
        "gss_acquire_cred_from",
        None if name is None else name.pointer,
        _FOREVER,
        byref(accepted or mechanisms(KERBEROS)),
        usage,
        byref(where) if pairs else None,
        byref(credential.pointer),
        None,
        None,
    )
    return credential


class SecurityContext:
    """One peer's context of a logon.

    Args:
        advance: passes a token to the library, and gets its answer; returns the major status.

    Attributes:
        is_complete: whether no further token of the other peer is needed.
    """

    def __init__(self, advance: Callable[[GssHandle, GssBuffer, GssBuffer], int]) -> None:
        self.is_complete = False
        self._advance = advance
        self._handle = GssHandle("gss_delete_sec_context", None)

    def process_token(self, token: bytes) -> bytes:
        """Process a token of the other peer.

        Args:
            token: the token; empty to begin.

        Returns:
            The token to send to the other peer; empty if there is none to send.

        Raises:
            GssError: one of the two peers does not accept the other.
        """
        output = GssBuffer()
        given = GssBuffer.from_bytes(token)
        try:
            major = self._advance(self._handle, given, output)
        finally:
            answer = output.take_bytes()
        self.is_complete = not major & _CONTINUE_NEEDED
        return answer


def initiate(spn: str, credential: GssHandle | None) -> SecurityContext:
    """Begin a logon to a service, with mutual authentication.

    Args:
        spn: as for `service_name`.
        credential: the credential of the user; None for the ticket in the default cache (kinit).

    Raises:
        GssError: the name is invalid, or the library is missing.
    """
    target = service_name(spn)

    def advance(context: GssHandle, token: GssBuffer, output: GssBuffer) -> int:
        return call(
            "gss_init_sec_context",
            None if credential is None else credential.pointer,
            byref(context.pointer),
            target.pointer,
            byref(KERBEROS),
            _MUTUAL,
            0,
            None,
            byref(token) if token.length else None,
            None,
            byref(output),
            None,
            None,
        )

    return SecurityContext(advance)


class KeytabIdentity:
    """The first principal of a keytab. Its tickets are requested and renewed when needed.

    Args:
        keytab: the file.
    """

    def __init__(self, keytab: str) -> None:
        self._store = {"client_keytab": keytab, "ccache": f"MEMORY:{uuid.uuid4()}"}

    def acquire(self) -> GssHandle:
        """Acquire the credential of the principal.

        Raises:
            GssError: the keytab cannot be read, or the KDC issues no ticket for it.
        """
        return acquire(None, INITIATE, self._store)


def owner(credential: GssHandle) -> str:
    """Return the name of a credential's owner.

    Raises:
        GssError: the owner is unknown.
    """
    name = name_handle()
    call("gss_inquire_cred", credential.pointer, byref(name.pointer), None, None, None)
    return shown(name)
