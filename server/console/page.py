"""`/`: the page itself, which loads everything else.

Programs that know AMPS look in its source whether there is a transport for queries, as
`__sql=true`, and wait until it answers 200.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from server.admin.http.messages import HTML, Document, Request, Response
from server.console.assets import STATIC
from server.console.policy import is_source, policy

if TYPE_CHECKING:
    from server.admin.access import Visitor
    from server.console.queries import QueryTransport


class ConsolePage:
    """Answers requests for the page.

    Args:
        name: the instance's name.
        base: the path of its files.
        queries: the transport for queries, if there is one.
        mesh: gives the addresses of other instances, which the page may ask, at the moment.
    """

    def __init__(
        self,
        name: str,
        base: str,
        queries: QueryTransport | None,
        mesh: Callable[[], Sequence[str]],
    ) -> None:
        text = (STATIC / "index.html").read_text()
        sql = f"__sql={'false' if queries is None else 'true'}"
        self._text = _filled(text, {"name": name, "base": base, "sql": sql})
        self._queries = queries
        self._mesh = mesh

    async def answer(self, request: Request, _visitor: Visitor) -> Response:
        """Send it."""
        mesh = [one for one in self._mesh() if is_source(_origin(one))]
        text = _filled(self._text, {"mesh": " ".join(mesh)})
        queries = [] if self._queries is None else self._queries.sources(request)
        policed = ("Content-Security-Policy", policy([*queries, *map(_origin, mesh)]))
        return Response(Document(text.encode(errors="replace"), HTML), headers=[policed])


def _filled(text: str, known: Mapping[str, str]) -> str:
    """A text with values in the place of their names."""
    for key, value in known.items():
        text = text.replace(f"{{{{{key}}}}}", escape(value))
    return text


def _origin(address: str) -> str:
    """Scheme, host and port of an address that may lead on."""
    scheme, _, where = address.partition("://")
    return f"{scheme}://{where.partition('/')[0]}"
