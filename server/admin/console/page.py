"""`/`: the page itself, which loads everything else.

Programs written for AMPS search its source for `__sql=true`, which means that there is a transport
for queries, and wait until it answers 200.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from server.admin.console.assets import STATIC
from server.admin.console.policy import is_source, policy
from server.admin.http.messages import HTML, HttpDocument, HttpRequest, HttpResponse

if TYPE_CHECKING:
    from server.admin.access import Requester
    from server.admin.console.queries import QueryTransport


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
