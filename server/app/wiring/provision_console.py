"""Makes the console of an instance: its page, and the paths it requests besides statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.admin.console import action_states, expressions, graph, log_tail, logon
from server.admin.console.assets import CONSOLE, Assets
from server.admin.console.mesh import mesh_addresses
from server.admin.console.page import ConsolePage
from server.admin.console.policy import policy
from server.admin.console.queries import query_transport
from server.admin.console.session import MAY, SESSION, SessionPage
from server.admin.site import Route
from server.app.wiring.plan import as_data, plan_runtime

if TYPE_CHECKING:
    from collections.abc import Collection

    from actions.runner import Actions
    from config_schema.spec import AdminSpec, InstanceSpec
    from server.admin.access import Access
    from server.admin.csrf import CrossSite
    from server.admin.engine_calls import EngineSide
    from server.engine.engine import Engine
    from server.log.targets.memory import MemoryTarget
    from server.statistics.statistics_thread import Keeper


def provision_console(
    spec: InstanceSpec,
    admin: AdminSpec,
    engine: Engine,
    actions: Actions,
    recent: MemoryTarget | None,
    statistics: Keeper,
    secrets: Collection[str],
    access: Access,
    engine_side: EngineSide,
    cross_site: CrossSite,
) -> list[Route]:
    """Make the paths of the console.

    Args:
        spec: the instance's description.
        admin: that of the admin interface.
        engine: has the functions of expressions.
        actions: the instance's actions.
        recent: the last entries of the log; None if they are not kept.
        statistics: has the addresses of other instances.
        secrets: the values of secret variables of the configuration, to be redacted.
        access: decides which paths a user may read.
        engine_side: queries changing state on the engine's thread.
        cross_site: decides the sites whose pages may read the log.
    """
    queries = query_transport(spec, admin)

    assets = Assets(access, policy())
    page = ConsolePage(spec.name, assets.base, queries, lambda: mesh_addresses(statistics.latest))
    session = SessionPage(spec, admin, assets.base, queries, access)
    shown = graph.Graph(as_data(plan_runtime(spec, secrets)), access)
    check = expressions.ExpressionCheck(engine.settings.functions, access)
    states = action_states.ActionStates(actions.states, access, engine_side)
    routes = [
        Route((), page.answer),
        Route((CONSOLE,), assets.answer, leads_on=True),
        Route((CONSOLE, SESSION), session.session),
        Route((CONSOLE, MAY), session.may),
        Route(logon.PATH, logon.Logon(access).answer),
        Route(graph.PATH, shown.answer),
        Route(expressions.PATH, check.answer),
        Route(action_states.PATH, states.answer),
    ]
    if recent is not None:
        routes.append(Route(log_tail.PATH, log_tail.LogTail(recent, access, cross_site).answer))
    return routes
