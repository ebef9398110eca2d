"""Formats the permissions of a user for `ampServer --explain-access`: as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from server.app.wiring.access_explanation import AccessDecision, AccessPoint, ModuleReport
    from server.security.permissions import Permit


def as_text(user: str, path: str, entrances: Sequence[AccessPoint]) -> str:
    """Return a block of text for each transport, with a line for each operation of the user."""
    blocks = [[f"user {user!r} of {path}"], *(list(_entrance(user, one)) for one in entrances)]
    return "\n\n".join("\n".join(block) for block in blocks)


def _entrance(user: str, entrance: AccessPoint) -> Iterator[str]:
    where = f" ({entrance.address})" if entrance.address else ""
    yield f"transport {entrance.transport}{where}"
    yield from _module("authentication", entrance.authentication)
    yield from _module("entitlement", entrance.entitlement)
    if not entrance.is_admitted:
        yield f"  {user!r} cannot log on"
    if not entrance.decisions:
        return
    rows = [
        (f"{right.resource} {right.access}".rstrip(), verdict(right.permit), right.permit.rule)
        for right in entrance.decisions
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for what, allowed, rule in rows:
        yield f"  {what:<{widths[0]}}  {allowed:<{widths[1]}}  {rule}".rstrip()


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


def as_json(user: str, path: str, entrances: Sequence[AccessPoint]) -> str:
    """Return the permissions as one JSON object."""
    content = {
        "user": user,
        "configuration": path,
        "transports": [_object(one) for one in entrances],
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _object(entrance: AccessPoint) -> dict[str, Any]:
    return {
        "transport": entrance.transport,
        "address": entrance.address,
        "authentication": _module_object(entrance.authentication),
        "entitlement": _module_object(entrance.entitlement),
        "asked_about": entrance.user,
        "can_log_on": _can_log_on(entrance),
        "rights": [_right(right) for right in entrance.decisions],
    }


def _can_log_on(entrance: AccessPoint) -> bool | None:
    """Return whether a logon succeeds; None if that cannot be known here."""
    if not entrance.is_admitted:
        return False
    return entrance.decisions[0].permit.is_allowed if entrance.decisions else None


def _module_object(module: ModuleReport) -> dict[str, str]:
    return {
        "module": module.name,
        "library": module.library,
        "help": module.help,
        "says": module.explanation,
    }


def _right(right: AccessDecision) -> dict[str, Any]:
    permit = right.permit
    return {
        "what": right.resource,
        "access": right.access or None,
        "allowed": permit.is_allowed,
        "filter": permit.filter_text or None,
        "select": permit.select_text or None,
        "rule": permit.rule,
    }
