"""The GSS-API of MIT Kerberos, as far as logons need it: the library of the system, by ctypes.

    import_name -> acquire -> SecurityContext.step, a token in, a token out, until it is complete

Calls may take long: they read files, and ask a KDC. They let other Python threads go on meanwhile.
What the library needs to know of realms and KDCs is in /etc/krb5.conf, or where KRB5_CONFIG says.

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
"""A flag of contexts: the peer has not said who it is (RFC 2744, GSS_C_ANON_FLAG)."""
_MUTUAL: Final = 2

_CONTINUE_NEEDED: Final = 1
_ERRORS: Final = 0xFFFF0000
_FOREVER: Final = 0xFFFFFFFF
_GSS_CODE: Final = 1
_MECHANISM_CODE: Final = 2


class GssError(Exception):
    """Kerberos does not work, or does not accept something. The text says why, without secrets."""


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", ctypes.c_char_p))


class OidSet(ctypes.Structure):
    """Several mechanisms."""

    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class Buffer(ctypes.Structure):
    """Bytes that are given, or that are got: then `take` has to be called."""

    _fields_ = (("length", c_size_t), ("value", c_void_p))
    kept: object

    @classmethod
    def of(cls, content: bytes) -> Buffer:
        """A buffer to give."""
        kept = ctypes.create_string_buffer(content, len(content) or 1)
        made = cls(len(content), ctypes.addressof(kept))
        made.kept = kept  # as long as the buffer
        return made

    def take(self) -> bytes:
        """What has been got; the library's memory is given back."""
        found = ctypes.string_at(self.value, self.length) if self.value else b""
        library().gss_release_buffer(byref(c_uint32()), byref(self))
        return found


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
"""The functions that are called, with the types of their arguments; all return a status."""


@lru_cache
def library() -> ctypes.CDLL:
    """The library of the system.

    Raises:
        GssError: there is none.
    """
    try:
        found = ctypes.CDLL(LIBRARY)
        for name, arguments in _FUNCTIONS.items():
            function = getattr(found, name)
            function.argtypes, function.restype = arguments, c_uint32
    except (OSError, AttributeError) as problem:
        raise GssError(
            f"Kerberos needs {LIBRARY} of MIT Kerberos 1.11 or later "
            f"(Debian: libgssapi-krb5-2): {problem}"
        ) from None
    return found


def call(name: str, *arguments: object) -> int:
    """Call a function of the library.

    Args:
        name: its name.
        arguments: those behind the minor status.

    Returns:
        The major status: zero, or what is to be done.

    Raises:
        GssError: it failed.
    """
    minor = c_uint32()
    major: int = getattr(library(), name)(byref(minor), *arguments)
    if major & _ERRORS:
        raise GssError(_explain(major, minor.value))
    return major


def _explain(major: int, minor: int) -> str:
    """What went wrong: in the words of the mechanism, or else in general ones."""
    general = _words(major, _GSS_CODE)
    special = _words(minor, _MECHANISM_CODE) if minor else ""
    return f"{general}: {special}" if special else general


def _words(status: int, kind: int) -> str:
    found: list[str] = []
    more = c_uint32()
    while len(found) < 8:  # there are one or two
        text = Buffer()
        problem = library().gss_display_status(
            byref(c_uint32()), status, kind, byref(KERBEROS), byref(more), byref(text)
        )
        if problem & _ERRORS:
            break
        found.append(text.take().decode(errors="replace").strip().rstrip("."))
        if not more.value:
            break
    return "; ".join(found)


class Handle:
    """Something of the library's that is given back in the end.

    Args:
        release: the function that takes it back.
        arguments: of it, behind the handle.

    Attributes:
        pointer: what functions are given.
    """

    def __init__(self, release: str, *arguments: object) -> None:
        self.pointer: Final = c_void_p()
        weakref.finalize(self, _give_back, self.pointer, release, arguments)


def _give_back(pointer: c_void_p, release: str, arguments: tuple[object, ...]) -> None:
    if pointer.value:
        getattr(library(), release)(byref(c_uint32()), byref(pointer), *arguments)


def name_handle() -> Handle:
    """A place for a name."""
    return Handle("gss_release_name")


def principal_name(principal: str) -> Handle:
    """The name of a principal, which is taken as it stands; the default realm if it names none."""
    return _import_name(principal, _PRINCIPAL_NAME)


def service_name(spn: str) -> Handle:
    """The name of a service to talk to: `AMPS/host`, `AMPS/host:port` or `AMPS/host@REALM`.

    Without a realm the host's name is completed and its realm found as krb5.conf says.

    Raises:
        GssError: it is no such name.
    """
    service, slash, place = spn.partition("/")
    if not service or not slash or not place:
        raise GssError(f"{spn!r} is no name of a service: expected for example AMPS/host.domain")
    if "@" in place:
        return principal_name(spn)
    host, _, port = place.rpartition(":")
    return _import_name(f"{service}@{host if port.isdigit() and host else place}", _HOST_BASED_NAME)


def _import_name(text: str, form: _Oid) -> Handle:
    name = name_handle()
    given = Buffer.of(text.encode(errors="replace"))
    call("gss_import_name", byref(given), byref(form), byref(name.pointer))
    return name


def shown(name: Handle) -> str:
    """A name as people write it, `user@REALM`.

    Raises:
        GssError: it cannot be shown.
    """
    text = Buffer()
    call("gss_display_name", name.pointer, byref(text), None)
    return text.take().decode(errors="replace")


def mechanisms(*mechanisms: _Oid) -> OidSet:
    """Several mechanisms, to give."""
    elements = (_Oid * len(mechanisms))(*mechanisms)
    return OidSet(len(mechanisms), elements)


def acquire(
    name: Handle | None, usage: int, store: Mapping[str, str], accepted: OidSet | None = None
) -> Handle:
    """Get what proves an identity.

    Args:
        name: whose; None for the only one, or the first.
        usage: INITIATE or ACCEPT.
        store: where it is, such as {"keytab": path}.
        accepted: by which mechanisms it may be used; None for Kerberos.

    Raises:
        GssError: it is not there.
    """
    pairs = [_Element(key.encode(), value.encode()) for key, value in store.items()]
    elements = (_Element * len(pairs))(*pairs)
    where = _Store(len(pairs), elements)
    credential = Handle("gss_release_cred")
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
    """One end of a logon.

    Args:
        advance: gives the library a token, and gets its answer; returns the major status.

    Attributes:
        is_complete: whether nothing more has to come.
    """

    def __init__(self, advance: Callable[[Handle, Buffer, Buffer], int]) -> None:
        self.is_complete = False
        self._advance = advance
        self._handle = Handle("gss_delete_sec_context", None)

    def step(self, token: bytes) -> bytes:
        """Take what the other end has said.

        Args:
            token: its token; empty to begin.

        Returns:
            What to say to it; empty for nothing.

        Raises:
            GssError: one of the two ends does not accept the other.
        """
        said = Buffer()
        given = Buffer.of(token)
        try:
            major = self._advance(self._handle, given, said)
        finally:
            answer = said.take()
        self.is_complete = not major & _CONTINUE_NEEDED
        return answer


def initiate(spn: str, credential: Handle | None) -> SecurityContext:
    """Begin a logon to a service, which has to prove in turn that it is that service.

    Args:
        spn: as for `service_name`.
        credential: as whom; None for whoever has got a ticket (kinit).

    Raises:
        GssError: there is no such name, or no library.
    """
    target = service_name(spn)

    def advance(context: Handle, token: Buffer, said: Buffer) -> int:
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
            byref(said),
            None,
            None,
        )

    return SecurityContext(advance)


class KeytabIdentity:
    """The first principal of a keytab, whose tickets are got and renewed when they are needed.

    Args:
        keytab: the file.
    """

    def __init__(self, keytab: str) -> None:
        self._store = {"client_keytab": keytab, "ccache": f"MEMORY:{uuid.uuid4()}"}

    def acquire(self) -> Handle:
        """Get what proves that identity.

        Raises:
            GssError: the keytab cannot be read, or the KDC gives no ticket for it.
        """
        return acquire(None, INITIATE, self._store)


def owner(credential: Handle) -> str:
    """Whose a credential is.

    Raises:
        GssError: nobody knows.
    """
    name = name_handle()
    call("gss_inquire_cred", credential.pointer, byref(name.pointer), None, None, None)
    return shown(name)
