"""Formats the permissions of a user for `ampServer --explain-access`: as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.app.wiring.access_explanation import AccessDecision, AccessPoint, ModuleReport
    from server.security.permissions import Permit


def as_text(user: str, path: str, access_points: Sequence[AccessPoint]) -> str:
    """Return a block of text for each transport, with a line for each operation of the user."""
    blocks = [
        [f"user {user!r} of {path}"],
        *(list(_access_point_lines(user, access_point)) for access_point in access_points),
    ]
    return "\n\n".join("\n".join(block) for block in blocks)


def _access_point_lines(user: str, access_point: AccessPoint) -> Iterator[str]:
    where = f" ({access_point.address})" if access_point.address else ""
    yield f"transport {access_point.transport}{where}"
    yield from _module("authentication", access_point.authentication)
    yield from _module("entitlement", access_point.entitlement)
    if not access_point.is_admitted:
        yield f"  {user!r} cannot log on"
    if not access_point.decisions:
        return
    rows = [
        (
            f"{decision.resource} {decision.access}".rstrip(),
            verdict(decision.permit),
            decision.permit.rule,
        )
        for decision in access_point.decisions
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for operation, allowed, rule in rows:
        yield f"  {operation:<{widths[0]}}  {allowed:<{widths[1]}}  {rule}".rstrip()


def _module(kind: str, module: ModuleReport) -> Iterator[str]:
    name = f"{module.name}: " if module.name else ""
    library = f"{module.library}, " if module.library else ""
    yield f"  {kind:<14}  {name}{library}{module.help}"
    if module.explanation:
        yield f"  {'':<14}  {module.explanation}"


def verdict(permit: Permit) -> str:
    """Return `yes`, `no`, or the limits of a permit."""
    if not permit.is_allowed:
        return "no"
    limits = []
    if permit.filter_text:
        limits.append(f"where {permit.filter_text}")
    if permit.select_text:
        limits.append(f"fields {permit.select_text}")
    return ", ".join(limits) or "yes"


def as_json(user: str, path: str, access_points: Sequence[AccessPoint]) -> str:
    """Return the permissions as one JSON object."""
    content = {
        "user": user,
        "configuration": path,
        "transports": [_object(access_point) for access_point in access_points],
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _object(access_point: AccessPoint) -> dict[str, Any]:
    return {
        "transport": access_point.transport,
        "address": access_point.address,
        "authentication": _module_object(access_point.authentication),
        "entitlement": _module_object(access_point.entitlement),
        "asked_about": access_point.user,
        "can_log_on": _can_log_on(access_point),
        "rights": [_decision_object(decision) for decision in access_point.decisions],
    }


def _can_log_on(access_point: AccessPoint) -> bool | None:
    """Return whether a logon succeeds; None if that cannot be known here."""
    if not access_point.is_admitted:
        return False
    return access_point.decisions[0].permit.is_allowed if access_point.decisions else None


def _module_object(module: ModuleReport) -> dict[str, str]:
    return {
        "module": module.name,
        "library": module.library,
        "help": module.help,
        "says": module.explanation,
    }


def _decision_object(decision: AccessDecision) -> dict[str, Any]:
    permit = decision.permit
    return {
        "what": decision.resource,
        "access": decision.access or None,
        "allowed": permit.is_allowed,
        "filter": permit.filter_text or None,
        "select": permit.select_text or None,
        "rule": permit.rule,
    }
