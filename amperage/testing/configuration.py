"""Changes a configuration for a temporary server: free ports, and a log on standard output."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from lxml import etree

_HOST: Final = "127.0.0.1"
_OTHER_PROTOCOLS: Final = ("postgresql", "flight-sql")
"""Protocols of transports for other clients than those of Amperage."""


@dataclass(frozen=True, slots=True)
class PreparedConfiguration:
    """A configuration with free ports.

    Attributes:
        text: the configuration.
        ports: the ports of the transports, by their names.
        urls: the URIs of the transports for clients, by their names, in the configuration's order.
        admin_url: the URL of the admin interface; None if there is none.
    """

    text: str
    ports: dict[str, int]
    urls: dict[str, str]
    admin_url: str | None


def prepared(text: str) -> PreparedConfiguration:
    """Replace the addresses of the transports and of the admin interface by free local ones.

    Raises:
        ValueError: the text is not XML, or has no transport for clients.
    """
    try:
        root = etree.fromstring(text.strip().encode(), etree.XMLParser(resolve_entities=False))
    except etree.XMLSyntaxError as error:
        raise ValueError(f"configuration: {error}") from None
    transports = root.findall("Transports/Transport")
    admin = root.find("Admin")
    ports: dict[str, int] = {}
    urls: dict[str, str] = {}
    admin_url: str | None = None
    with ExitStack() as reserved:
        for number, transport in enumerate(transports, 1):
            address = transport.find("InetAddr")
            if address is None:
                continue
            name = transport.findtext("Name", f"transport-{number}").strip()
            ports[name] = reserved.enter_context(_FreePort()).port
            address.text = f"{_HOST}:{ports[name]}"
            if (url := _url_of(transport, ports[name])) is not None:
                urls[name] = url
        if admin is not None and (address := admin.find("InetAddr")) is not None:
            port = reserved.enter_context(_FreePort()).port
            address.text = f"{_HOST}:{port}"
            scheme = "http" if admin.find("Certificate") is None else "https"
            admin_url = f"{scheme}://{_HOST}:{port}"
    if not urls:
        raise ValueError("configuration: expected a Transport for clients, with an InetAddr")
    _log_to_stdout(root)
    return PreparedConfiguration(etree.tostring(root, encoding="unicode"), ports, urls, admin_url)


class _FreePort:
    """Reserves a port until the other ports are chosen, so that each is another one."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((_HOST, 0))
        self.port: int = self._socket.getsockname()[1]

    def __enter__(self) -> _FreePort:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._socket.close()


def _url_of(transport: etree._Element, port: int) -> str | None:
    kind = transport.findtext("Type", "tcp").strip()
    protocol = transport.findtext("Protocol", "amps").strip()
    if kind not in ("tcp", "tcps", "ws", "wss") or protocol in _OTHER_PROTOCOLS:
        return None
    scheme = kind
    if protocol in ("websocket", "ws", "wss"):
        scheme = "wss" if kind in ("tcps", "wss") else "ws"
        protocol = "amps"
    message_type = transport.findtext("MessageType", "json").strip()
    suffix = f"/{message_type}" if protocol == "amps" else ""
    return f"{scheme}://{_HOST}:{port}/{protocol}{suffix}"


def _log_to_stdout(root: etree._Element) -> None:
    logging = root.find("Logging")
    if logging is None:
        logging = etree.SubElement(root, "Logging")
    if "stdout" in _target_protocols(logging):
        return
    target = etree.SubElement(logging, "Target")
    etree.SubElement(target, "Protocol").text = "stdout"
    etree.SubElement(target, "Level").text = "info"


def _target_protocols(logging: etree._Element) -> Iterator[str]:
    return (target.findtext("Protocol", "").strip() for target in logging.findall("Target"))
