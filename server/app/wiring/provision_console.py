"""Makes the console of an instance: its page, and the paths it requests besides statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.admin.console import expressions, log_tail, logon, runbook
from server.admin.console.assets import CONSOLE, SQL_PATH, ConsoleAssets
from server.admin.console.json_page import JsonPage
from server.admin.console.page import ConsolePage, mesh_addresses, policy
from server.admin.console.queries import query_transport
from server.admin.console.session import MAY, SESSION, SessionPage, SqlOffer
from server.admin.site import HttpRoute
from server.app.wiring.console_sql import SqlPage
from server.app.wiring.plan import as_data, plan_runtime

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.runner import ActionRunner
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.admin.access import AccessControl
    from server.admin.console.queries import QueryTransport
    from server.admin.csrf import CsrfProtection
    from server.admin.engine_calls import EngineCalls
    from server.admin.pages import ConfigurationText
    from server.app.wiring.sql_transports import ConsoleSql
    from server.engine.engine import Engine
    from server.log.targets.memory import MemoryTarget
    from server.statistics.statistics_thread import StatisticsThread


def provision_console(
    spec: InstanceSpec,
    admin: AdminSpec,
    engine: Engine,
    actions: ActionRunner,
    recent: MemoryTarget | None,
    statistics: StatisticsThread,
    running: ConfigurationText,
    sql: Callable[[], ConsoleSql],
    access: AccessControl,
    engine_calls: EngineCalls,
    csrf: CsrfProtection,
) -> list[HttpRoute]:
    """Make the paths of the console.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        engine: has the functions of expressions.
        actions: the instance's actions.
        recent: the last entries of the log; None if they are not kept.
        statistics: has the addresses of other instances.
        running: the configuration that the instance runs.
        sql: returns the transport through which statements are executed at the moment.
        access: decides which paths a user may read.
        engine_calls: queries changing state on the engine's thread.
        csrf: decides the sites whose pages may read the log.
    """

    def queries() -> QueryTransport | None:
        return query_transport(running.version.spec, admin)

    assets = ConsoleAssets(access, policy())
    page = ConsolePage(
        spec.name, assets.base_path, queries, lambda: mesh_addresses(statistics.latest)
    )

    def offer_sql() -> SqlOffer:
        transport, refusal = sql()
        return SqlOffer("" if transport is None else transport.name, refusal)

    session = SessionPage(spec, admin, assets.base_path, queries, offer_sql, access)

    async def make_graph() -> dict[str, object]:
        version = running.version
        return as_data(plan_runtime(version.spec, version.secrets))

    async def list_actions() -> dict[str, object]:
        return {"actions": await engine_calls.call(actions.states)}

    check = expressions.ExpressionCheckPage(engine.settings.functions, access)
    routes = [
        HttpRoute((), page.handle_request),
        HttpRoute((CONSOLE,), assets.handle_request, is_prefix=True),
        HttpRoute((CONSOLE, SESSION), session.handle_session_request),
        HttpRoute((CONSOLE, MAY), session.handle_may_request),
        HttpRoute(logon.PATH, logon.LogonPage(access).handle_request),
        HttpRoute(runbook.PATH, runbook.RunbookPage(access).handle_request),
        HttpRoute(expressions.PATH, check.handle_request),
        *(
            HttpRoute((CONSOLE, f"{name}.json"), JsonPage(name, read, access).handle_request)
            for name, read in (("actions", list_actions), ("graph", make_graph))
        ),
    ]
    if recent is not None:
        routes.append(
            HttpRoute(log_tail.PATH, log_tail.LogTail(recent, access, csrf).handle_request)
        )
    statements = SqlPage(lambda: sql().transport, access, csrf, engine_calls)
    routes.append(HttpRoute(SQL_PATH, statements.handle_request, is_prefix=True, methods=["POST"]))
    return routes
