"""Protocols and transports.

Source: AMPS User Guide, Configuring Transports and Configuring Protocols.
"""

import re
from collections.abc import Sequence
from typing import Final, get_args

from config_schema.catalogue import ModuleKind
from config_schema.compile.modules import built_in, compile_use, find_module
from config_schema.compile.reader import INTERVAL, PERCENTAGE, SIZE, ElementReader, did_you_mean
from config_schema.compile.scope import Scope
from config_schema.spec import (
    ModuleUse,
    ProtocolSpec,
    SlowClientLimits,
    TlsSpec,
    TransportSpec,
    TransportType,
)
from config_schema.spec.exposure import accepts_any_client
from config_schema.units import quoted

TYPES: Final[tuple[TransportType, ...]] = get_args(TransportType)
PROTOCOL_SYNONYMS: Final = {"json": "amps"}
LEGACY_PROTOCOLS: Final = ("fix", "nvfix", "soap", "xml")
"""Protocols that give clients no means to specify their message type."""

_FIX_SESSION: Final = "fix-session"

TLS_PROTOCOLS: Final = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
DEFAULT_TLS_PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
"""AMPS has TLSv1.1 as well, which has to be requested here."""

ANY_ORIGIN: Final = "*"
"""AccessControlAllowOrigin for pages of all sites."""

_REPLICATION: Final = ("amps-replication", "amps-replication-secure")
_SECURE: Final = ("tcps", "amps-replication-secure")
TLS_ELEMENTS: Final = (
    "Certificate",
    "PrivateKey",
    "Ciphers",
    "SecureSocketProtocols",
    "VerifyClient",
    "CAFile",
    "CAPath",
)
_HTTP_HEADER: Final = re.compile(r"[\w!#$%&'*+.^`|~-]+[ \t]*:[^\x00-\x08\x0a-\x1f\x7f]*", re.ASCII)
_BASIC: Final = re.compile(r'Basic\s+realm="[^"]+"', re.IGNORECASE)


def compile_protocols(root: ElementReader, scope: Scope) -> tuple[ProtocolSpec, ...]:
    """Compile the Protocols section."""
    for reader in root.section_children("Protocols", "Protocol"):
        name = reader.required("Name")
        module = reader.required("Module")
        if name in scope.protocols:
            reader.error(f"protocol {quoted(name)} is defined twice", tag="Name")
        base = PROTOCOL_SYNONYMS.get(module, module)
        if _is_supported(reader, base, "Module"):
            find_module(reader, base, ModuleKind.PROTOCOL, scope)
        if base != "websocket":
            tags = ("WWWAuthenticate", "TrustedAdmin", "HTTPHeader", "AccessControlAllowOrigin")
            reader.warn_no_effect(tags, "it is for protocols made from websocket")
        elif reader.flag("TrustedAdmin", default=False) and not _requires_logon(root):
            reader.warning(
                "has no effect: the admin interface has no logon",
                "give the Admin section an Authentication",
                tag="TrustedAdmin",
            )
        scope.protocols[name] = ProtocolSpec(
            name=name,
            module=base,
            www_authenticate=www_authenticate(reader),
            trusted_admin=reader.flag("TrustedAdmin", default=False),
            http_headers=_http_headers(reader),
            allowed_origins=_allowed_origins(reader),
            location=reader.location,
        )
    return tuple(scope.protocols.values())


def _requires_logon(root: ElementReader) -> bool:
    """Return true if the admin interface requires a logon."""
    admin = root.child("Admin")
    return admin is not None and (root.has("Authentication") or admin.has("Authentication"))


def www_authenticate(reader: ElementReader) -> str | None:
    """Return how HTTP clients give their credentials: Negotiate, or Basic with its realm."""
    text = reader.text("WWWAuthenticate")
    if text is None or _BASIC.fullmatch(text):
        return text
    if text.lower() == "negotiate":
        return "Negotiate"
    if text.upper() == "NTLM":
        reader.error(
            "NTLM is not supported: no module can check the credentials of browsers",
            'expected Negotiate (Kerberos) or Basic realm="the name of the realm"',
            tag="WWWAuthenticate",
        )
        return text
    reader.error(
        f"{quoted(text)} is not accepted: expected Negotiate or "
        'Basic realm="the name of the realm"',
        tag="WWWAuthenticate",
    )
    return text


def _http_headers(reader: ElementReader) -> tuple[str, ...]:
    """Return the headers that responses to websocket handshakes carry."""
    for header in reader.children("HTTPHeader"):
        if not _HTTP_HEADER.fullmatch(header.value):
            header.error(f"{quoted(header.value)} is not an HTTP header: expected Name: value")
    return reader.texts("HTTPHeader")


def _allowed_origins(reader: ElementReader) -> tuple[str, ...]:
    """Return the regular expressions for the pages that may open websockets; * is any page."""
    for origin in reader.children("AccessControlAllowOrigin"):
        if not origin.value:
            origin.error("is empty: expected a regular expression, or * for any origin")
        elif origin.value != ANY_ORIGIN:
            origin.checked_pattern()
    return reader.texts("AccessControlAllowOrigin")


def compile_transports(root: ElementReader, scope: Scope) -> tuple[TransportSpec, ...]:
    """Compile the Transports section."""
    transports = []
    upstream: TransportSpec | None = None
    for reader in root.section_children("Transports", "Transport"):
        spec = _transport(reader, scope)
        earlier = scope.transports.get(spec.name)
        if earlier is not None:
            reader.error(
                f"there is already a transport named {quoted(spec.name)} at {earlier.location}",
                tag="Name",
            )
        if spec.is_replication and upstream is not None:
            reader.error(
                "is the second transport for replication: an instance has only one, "
                f"which is {quoted(upstream.name)} at {upstream.location}",
                "any number of upstream instances can share it",
                tag="Type",
            )
        if spec.is_replication:
            upstream = upstream or spec
            if not root.has("TransactionLog"):
                reader.warning(
                    "accepts replication, and there is no TransactionLog to record the messages: "
                    "it stays closed"
                )
        scope.transports.setdefault(spec.name, spec)
        transports.append(spec)
    if not root.has("Authentication"):
        _check_replication_credentials(root, transports)
    return tuple(transports)


def _check_replication_credentials(
    root: ElementReader, transports: Sequence[TransportSpec]
) -> None:
    """Warn of a transport for replication that checks no credentials, where another one does."""
    checking = next(
        (transport for transport in transports if not accepts_any_client(transport.authentication)),
        None,
    )
    for reader, spec in zip(
        root.section_children("Transports", "Transport"), transports, strict=True
    ):
        is_open = accepts_any_client(spec.authentication) and not (
            spec.tls and spec.tls.verify_client
        )
        if spec.is_replication and is_open and checking is not None:
            reader.warning(
                "accepts replication from any program that can connect, and sends it the "
                f"positions of these topics, while {quoted(checking.name)} at "
                f"{checking.location} has an Authentication",
                "give it an Authentication and an Entitlement, or move these to the instance",
            )


def _transport(reader: ElementReader, scope: Scope) -> TransportSpec:
    kind = reader.choice("Type", TYPES, "tcp")
    if not reader.has("Type"):
        reader.required("Type")
    protocol = _protocol(reader, kind, scope)
    _check_endpoint(reader, kind)
    return TransportSpec(
        name=reader.required("Name"),
        type=kind,
        protocol=protocol,
        inet_addr=reader.address("InetAddr") if kind != "amps-unix" else None,
        message_type=_message_type(reader, kind, protocol, scope),
        initial_state_enabled=reader.flag("InitialState", default=True),
        reuse_addr=reader.flag("ReuseAddr", default=True),
        file_name=reader.text("FileName") if kind == "amps-unix" else None,
        file_mask=reader.mask("FileMask"),
        tls=_listening_tls(reader, kind),
        authentication=compile_authentication(reader, scope),
        entitlement=compile_entitlement(reader, scope),
        filters=_filters(reader, scope),
        limits=compile_limits(reader),
        per_message_deflate=(reader.text("PerMessageDeflate") or "").lower() != "disabled",
        http_headers=_http_headers(reader),
        location=reader.location,
    )


def _protocol(reader: ElementReader, kind: TransportType, scope: Scope) -> str:
    if kind in _REPLICATION:
        reader.warn_no_effect(("Protocol",), "replication has a protocol of its own")
        return kind
    name = reader.text("Protocol") or "amps"
    name = PROTOCOL_SYNONYMS.get(name, name)
    known = [*built_in(reader, ModuleKind.PROTOCOL), *scope.protocols]
    if _is_supported(reader, name, "Protocol") and name not in known:
        reader.error(
            f"there is no protocol {quoted(name)}",
            did_you_mean(name, known) or f"the protocols are {', '.join(known)}",
            tag="Protocol",
        )
    if _base_protocol(name, scope) == "websocket":
        if kind == "amps-unix":
            reader.error("websocket needs a transport of type tcp or tcps", tag="Protocol")
    else:
        reader.warn_no_effect(
            ("PerMessageDeflate", "HTTPHeader"), "it is for the protocol websocket"
        )
    return name


def _is_supported(reader: ElementReader, protocol: str, tag: str) -> bool:
    """Return false for the protocol of AMPS whose format is not documented, and report it."""
    if protocol != _FIX_SESSION:
        return True
    reader.error(
        f"{_FIX_SESSION} is not supported: its behavior in AMPS is not documented",
        "send FIX messages over the protocol fix or amps",
        tag=tag,
    )
    return False


def _base_protocol(name: str, scope: Scope) -> str:
    variant = scope.protocols.get(name)
    return variant.module if variant else name


def _check_endpoint(reader: ElementReader, kind: TransportType) -> None:
    if kind == "amps-unix":
        if not reader.text("FileName"):
            reader.error(
                "is missing but required for amps-unix: where to create the socket", tag="FileName"
            )
        if reader.has("InetAddr"):
            reader.error("is not for amps-unix, whose address is its FileName", tag="InetAddr")
        reader.warn_no_effect(TLS_ELEMENTS, "connections of amps-unix stay on this machine")
        return
    if not reader.text("InetAddr"):
        reader.error(
            f"is missing but required for {kind}: the port to listen on, or host:port",
            tag="InetAddr",
        )
    reader.warn_no_effect(("FileName", "FileMask"), f"it is for amps-unix, and this is {kind}")


def _message_type(
    reader: ElementReader, kind: TransportType, protocol: str, scope: Scope
) -> str | None:
    if kind in _REPLICATION:
        reader.warn_no_effect(("MessageType",), "replication carries every message type")
        return None
    if _base_protocol(protocol, scope) in LEGACY_PROTOCOLS and not reader.text("MessageType"):
        reader.error(
            f"is missing but required with the protocol {protocol}, "
            "whose clients do not say which type they use",
            tag="MessageType",
        )
    return scope.message_type(reader) if reader.text("MessageType") else None


def _listening_tls(reader: ElementReader, kind: TransportType) -> TlsSpec | None:
    if kind == "amps-unix":
        return None
    absent = [tag for tag in ("Certificate", "PrivateKey") if not reader.text(tag)]
    if kind in _SECURE:
        for tag in absent:
            reader.error(f"is missing but required for {kind}", tag=tag)
    elif len(absent) == 1:
        reader.error("is missing: TLS needs Certificate and PrivateKey", tag=absent[0])
    elif absent:
        for tag in ("VerifyClient", "CAFile", "CAPath", "Ciphers", "SecureSocketProtocols"):
            if reader.text(tag):
                reader.error(
                    "asks for TLS, but the transport has no Certificate and PrivateKey", tag=tag
                )
        return None
    return compile_tls(reader)


def compile_tls(reader: ElementReader) -> TlsSpec:
    """Compile the TLS elements of a transport, a destination or the admin interface."""
    verify = reader.flag("VerifyClient", default=False)
    if verify and not reader.text("CAFile") and not reader.text("CAPath"):
        reader.error(
            "needs CAFile or CAPath: the certificates to check the other side with",
            tag="VerifyClient",
        )
    if not verify:
        for tag in ("CAFile", "CAPath"):
            if reader.text(tag):
                reader.warning(
                    "has no effect: without VerifyClient no certificate of the other side is "
                    "checked",
                    "add <VerifyClient>true</VerifyClient>",
                    tag=tag,
                )
    return TlsSpec(
        certificate=reader.text("Certificate"),
        private_key=reader.text("PrivateKey"),
        ciphers=reader.text("Ciphers"),
        protocols=_tls_protocols(reader),
        verify_client=verify,
        ca_file=reader.text("CAFile"),
        ca_path=reader.text("CAPath"),
    )


def _tls_protocols(reader: ElementReader) -> tuple[str, ...]:
    text = reader.text("SecureSocketProtocols")
    if text is None:
        return DEFAULT_TLS_PROTOCOLS
    known = {name.lower(): name for name in TLS_PROTOCOLS}
    words = re.split(r"[\s,]+", text)
    for word in words:
        if word.lower() not in known:
            reader.refuse_word("SecureSocketProtocols", word, "accepted", TLS_PROTOCOLS)
    protocols = tuple(known[word.lower()] for word in words if word.lower() in known)
    broken = [name for name in protocols if name not in DEFAULT_TLS_PROTOCOLS]
    if broken:
        reader.warning(
            f"allows insecure TLS versions: {' '.join(broken)}",
            f"remove the element: the default is {' '.join(DEFAULT_TLS_PROTOCOLS)}",
            tag="SecureSocketProtocols",
        )
    return protocols


def _filters(reader: ElementReader, scope: Scope) -> tuple[ModuleUse, ...]:
    uses = (
        compile_use(child, ModuleKind.TRANSPORT_FILTER, scope)
        for child in reader.children("TransportFilter")
    )
    return tuple(use for use in uses if use is not None)


def compile_authentication(reader: ElementReader, scope: Scope) -> ModuleUse | None:
    """Compile the Authentication element of the instance, a transport or the admin interface."""
    return compile_use(reader.child("Authentication"), ModuleKind.AUTHENTICATION, scope)


def compile_entitlement(reader: ElementReader, scope: Scope) -> ModuleUse | None:
    """Compile the Entitlement element of the instance, a transport or the admin interface."""
    return compile_use(reader.child("Entitlement"), ModuleKind.ENTITLEMENT, scope)


def compile_limits(reader: ElementReader) -> SlowClientLimits:
    """Compile the slow-client elements of the instance or of a transport."""
    return SlowClientLimits(
        message_memory_limit=reader.quantity("MessageMemoryLimit", SIZE, minimum="1B"),
        message_disk_limit=reader.quantity("MessageDiskLimit", SIZE),
        message_disk_path=reader.text("MessageDiskPath"),
        client_message_age_limit=reader.quantity("ClientMessageAgeLimit", INTERVAL, minimum="1ns"),
        client_max_capacity=reader.quantity(
            "ClientMaxCapacity", PERCENTAGE, minimum="1%", maximum="100%"
        ),
    )
