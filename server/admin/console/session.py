"""The page's data about the instance and the requester, and about the requester's permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.version import VERSION
from server.admin.console.assets import CONSOLE
from server.admin.http.messages import HttpRequest, HttpResponse, json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from config_schema.spec import AdminSpec, InstanceSpec
    from server.admin.access import AccessControl, Requester
    from server.admin.console.queries import QueryTransport

SESSION: Final = "session.json"
MAY: Final = "may.json"

_MILLISECOND: Final = 1_000_000


class SqlOffer(NamedTuple):
    """Whether the page can execute SQL.

    Attributes:
        transport: the name of the transport that executes it; empty if there is none.
        refusal: why a transport for SQL cannot be used.
    """

    transport: str
    refusal: str


class SessionPage:
    """Answers requests for `/console/session.json` and `/console/may.json`.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        base: the path of the page's files; the page compares it, to detect another version.
        queries: returns the transport for queries of the moment; None if there is none.
        sql: returns the transport for SQL of the moment.
        access: decides which paths a requester may read.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        admin: AdminSpec,
        base: str,
        queries: Callable[[], QueryTransport | None],
        sql: Callable[[], SqlOffer],
        access: AccessControl,
    ) -> None:
        self._static_data = {
            "name": spec.name,
            "group": spec.group,
            "description": spec.description or "",
            "environment": spec.environment or "",
            "version": VERSION,
            "interval": admin.interval // _MILLISECOND,
            "base": base,
        }
        self._sql = sql
        self._queries = queries
        self._access = access

    async def handle_session_request(
        self, request: HttpRequest, requester: Requester
    ) -> HttpResponse:
        """Return the data that the page needs when it is loaded.

            interval    milliseconds between samples
            base        the path of the page's files
            user        the name that the requester has logged on with; empty for none
            is_asked    whether entitlement is checked for each operation: see `handle_may_request`
            queries     the URL of the transport for queries; null if there is none
            sql         the name of the transport for SQL; empty if there is none
            sql_refusal why a transport for SQL cannot be used

        Raises:
            HttpError: the requester may not read this path.
        """
        await self._access.require_access(requester, f"/{CONSOLE}/session")
        queries, sql = self._queries(), self._sql()
        return json_response(
            {
                **self._static_data,
                "user": requester.user,
                "is_asked": self._access.has_entitlement,
                "queries": None if queries is None else queries.url(request),
                "sql": sql.transport,
                "sql_refusal": sql.refusal,
            }
        )

    async def handle_may_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Return whether the requester may use each path in the parameter `paths`, one per line.

        Raises:
            HttpError: the requester may not read this path.
        """
        await self._access.require_access(requester, f"/{CONSOLE}/may")
        paths = request.query.get("paths", "").split("\n")
        refused = await self._access.refused_paths(requester, paths)
        return json_response({path: path not in refused for path in paths})
