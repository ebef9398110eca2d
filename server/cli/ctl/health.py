"""The health and the state of an instance, as documents and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from server.cli.ctl.instance import CtlError, CtlInstance, CtlStatus

_OK: Final = "ok"
_FOUND_OK: Final = "ok"
_HEALTH: Final = "health"
_CHECKS: Final = ("live", "ready")

_STATE_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "transports": ("id", "is_enabled", "client_count"),
    "replication": ("id", "replication_type", "is_connected", "seconds_behind"),
    "queues": ("id", "queue_depth", "backlog"),
}
"""The fields of each part of an instance that `status` shows."""
_INSTANCE_FIELDS: Final = ("name", "version", "pid", "uptime", "config_path")


def read_health(instance: CtlInstance, scope: str) -> dict[str, Any]:
    """Return the results of both health checks, and the findings as far as the user may see them.

    Args:
        instance: the instance.
        scope: the destinations that count: sync or all.

    Raises:
        CtlError: there is no answer, or it is a refusal.
    """
    health: dict[str, Any] = {
        name: instance.get_document(path)
        for name, path in (
            ("live", "/healthz.json"),
            ("ready", f"/readyz.json?replication={scope}"),
        )
    }
    with suppress(CtlError):
        document = instance.get_document("/amps/instance/findings.json")
        checks = document["amps"]["instance"]["findings"]["checks"]
        health["findings"] = [check for check in checks if check["verdict"] != _FOUND_OK]
    return health


def health_status(health: Mapping[str, Any]) -> CtlStatus:
    """Return the exit status for the results of `read_health`."""
    is_ready = all(health[name]["status"] == _OK for name in _CHECKS)
    return CtlStatus.DONE if is_ready else CtlStatus.NOT_READY


def health_lines(health: Mapping[str, Any]) -> Iterator[str]:
    """Yield the results of `read_health` as text: a line each, and one for each failed check."""
    for name in _CHECKS:
        result = health[name]
        yield f"{name}: {result['status']}"
        for check in result["checks"]:
            if check["status"] != _OK:
                since = f", since {check['since']}" if check["since"] else ""
                yield f"  {check['name']}: {check['status']}{since}"
    for finding in health.get("findings", ()):
        if finding["area"] != _HEALTH:  # those are above
            yield f"{finding['verdict']}: {finding['name']}: {finding['value']}".removesuffix(": ")


def read_state(instance: CtlInstance) -> dict[str, Any]:
    """Return the state of an instance, from its last sample of statistics.

    Raises:
        CtlError: there is no answer, or it is a refusal.
    """
    tree = instance.get_document("/amps/instance.json")["amps"]["instance"]
    state: dict[str, Any] = {name: tree[name] for name in _INSTANCE_FIELDS if name in tree}
    state["clients"] = len(tree.get("clients", ()))
    for part, fields in _STATE_FIELDS.items():
        state[part] = [
            {name: entry[name] for name in fields if name in entry} for entry in tree.get(part, ())
        ]
    return state


def state_lines(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the state of an instance as text."""
    instance = " ".join(f"{name}={state[name]}" for name in _INSTANCE_FIELDS if name in state)
    yield f"instance: {instance} clients={state['clients']}"
    for part in _STATE_FIELDS:
        for entry in state[part]:
            values = " ".join(f"{name}={value}" for name, value in entry.items() if name != "id")
            yield f"{part} {entry['id']}: {values}"
