"""`/`: the page itself, which loads everything else.

Programs written for AMPS search its source for `__sql=true`, which means that there is a transport
for queries, and wait until it answers 200.

Its Content-Security-Policy allows only scripts and styles from files, nothing from other hosts, and
no text that becomes markup (Trusted Types). Besides its own host the page connects to the transport
for queries, and to the admin interfaces of the instances that this one replicates with: a browser
may reach an instance that this one cannot reach, and vice versa, so the replication page itself
queries each instance for its readiness. It may connect only to the addresses that its policy names
when it is loaded: instances reported later are queried only after a reload.

Source: W3C Content Security Policy Level 3; W3C Trusted Types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from server.admin.console.assets import STATIC
from server.admin.http.messages import HTML, HttpDocument, HttpRequest, HttpResponse
from server.statistics.resources import MESH_INSTANCES

if TYPE_CHECKING:
    from server.admin.access import Requester
    from server.admin.console.queries import QueryTransport
    from server.statistics.sample import StatisticsSnapshot


_SOURCE: Final = re.compile(r"[a-z]+://(?:[\w.*-]+|\[[0-9a-f:.]+\])(?::(?:\d+|\*))?", re.IGNORECASE)
"""The sources allowed in a policy: an address from another instance must not end the directive."""

_RULES: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "worker-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
    "require-trusted-types-for 'script'",
    "trusted-types console",
)


def is_source(text: str) -> bool:
    """Return whether a text is exactly one source that a page may connect to."""
    return _SOURCE.fullmatch(text) is not None


def policy(sources: Iterable[str] = ()) -> str:
    """Return a policy; sources that are not valid are left out.

    Args:
        sources: sources that the page may connect to besides its own host, as in ws://host:9008.
    """
    connect = [source for source in sources if is_source(source)]
    return "; ".join([*_RULES, " ".join(["connect-src 'self'", *dict.fromkeys(connect)])])


class ConsolePage:
    """Answers requests for the page.

    Args:
        name: the instance's name.
        base: the path of its files.
        queries: returns the transport for queries of the moment; None if there is none.
        mesh_addresses: returns the current addresses of other instances, which the page may query.
    """

    def __init__(
        self,
        name: str,
        base: str,
        queries: Callable[[], QueryTransport | None],
        mesh_addresses: Callable[[], Sequence[str]],
    ) -> None:
        text = (STATIC / "index.html").read_text()
        self._text = _fill_placeholders(text, {"name": name, "base": base})
        self._queries = queries
        self._mesh_addresses = mesh_addresses

    async def handle_request(self, request: HttpRequest, _requester: Requester) -> HttpResponse:
        """Return the page, with its Content-Security-Policy."""
        mesh = [address for address in self._mesh_addresses() if is_source(_origin(address))]
        queries = self._queries()
        sql = f"__sql={'false' if queries is None else 'true'}"
        text = _fill_placeholders(self._text, {"mesh": " ".join(mesh), "sql": sql})
        sources = [] if queries is None else queries.csp_sources(request)
        policy_header = ("Content-Security-Policy", policy([*sources, *map(_origin, mesh)]))
        return HttpResponse(
            HttpDocument(text.encode(errors="replace"), HTML), headers=[policy_header]
        )


def _fill_placeholders(text: str, placeholders: Mapping[str, str]) -> str:
    """Replace the placeholders `{{name}}` of a text by values, and return it."""
    for key, value in placeholders.items():
        text = text.replace(f"{{{{{key}}}}}", escape(value))
    return text


def _origin(address: str) -> str:
    """Return scheme, host and port of an address, without its path."""
    scheme, _, authority = address.partition("://")
    return f"{scheme}://{authority.partition('/')[0]}"


def mesh_addresses(snapshot: StatisticsSnapshot | None) -> list[str]:
    """Return the addresses of other instances' admin interfaces, as in http://host:8085.

    Args:
        snapshot: the latest statistics; None before the first sample.
    """
    if snapshot is None:
        return []
    names = [field.name for field in MESH_INSTANCES.fields]
    instances = (
        dict(zip(names, values, strict=True))
        for values in snapshot.entries.get(MESH_INSTANCES.path, {}).values()
    )
    return [
        f"{instance['admin_scheme']}://{instance['admin_addr']}"
        for instance in instances
        if instance["admin_addr"] and not instance["is_this"]
    ]
