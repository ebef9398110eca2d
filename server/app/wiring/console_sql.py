"""`/console/sql` and the paths below it, while the instance has a transport for SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.admin.http.messages import HttpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.admin.access import AccessControl, Requester
    from server.admin.console.sql_statements import SqlStatements
    from server.admin.csrf import CsrfProtection
    from server.admin.engine_calls import EngineCalls
    from server.admin.http.messages import HttpRequest, HttpResponse
    from server.sql.local_client import LocalSqlTransport


class SqlPage:
    """Passes requests to `SqlStatements`, whose libraries are imported by the first one.

    Args:
        find_transport: returns the transport that executes statements at the moment; None if there
            is none.
        access: see `SqlStatements`.
        csrf: likewise.
        engine_calls: likewise.
    """

    def __init__(
        self,
        find_transport: Callable[[], LocalSqlTransport | None],
        access: AccessControl,
        csrf: CsrfProtection,
        engine_calls: EngineCalls,
    ) -> None:
        self._find_transport: Final = find_transport
        self._access: Final = access
        self._csrf: Final = csrf
        self._engine_calls: Final = engine_calls
        self._statements: SqlStatements | None = None

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Execute statements, or continue or cancel them.

        Raises:
            HttpError: there is no transport for SQL, or see `SqlStatements`.
        """
        transport = self._find_transport()
        if transport is None:
            raise HttpError(404, "There is no transport for SQL that the console can use.")
        if self._statements is None:
            from server.admin.console.sql_statements import SqlStatements  # libraries of an extra

            self._statements = SqlStatements(self._access, self._csrf, self._engine_calls)
        return await self._statements.handle_request(request, requester, transport)
