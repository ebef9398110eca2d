"""The transports that clients and other instances come through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from server.statistics.resources import TRANSPORTS
from server.statistics.sample import Entry

if TYPE_CHECKING:
    from config_schema.spec import TransportSpec
    from server.statistics.schema import Value
    from server.transports.table import TransportTable


class TransportsSource:
    """The transports.

    Args:
        transports: those of the instance.
    """

    resource = TRANSPORTS

    def __init__(self, transports: TransportTable) -> None:
        self._listeners = transports.listeners
        self._fixed = {one.spec.name: _fixed(one.spec) for one in self._listeners}

    def entries(self) -> Iterator[Entry]:
        """See `Source.entries`."""
        for listener in self._listeners:
            name = listener.spec.name
            yield Entry(name, self._fixed[name], (int(listener.is_open),))


def _fixed(spec: TransportSpec) -> tuple[Value, ...]:
    options = {
        "InetAddr": spec.inet_addr,
        "FileName": spec.file_name,
        "Protocol": spec.protocol,
        "ReuseAddr": "true" if spec.reuse_addr else "",
    }
    text = ",".join(f"{name}={value}" for name, value in options.items() if value)
    return spec.message_type or "", spec.name, text, spec.type
