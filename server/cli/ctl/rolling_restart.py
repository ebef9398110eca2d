"""Restarts the instances of a mesh one after the other, and stops at the first failure.

An instance is drained, and started again by a command or by its supervisor. The next one follows
when all instances are ready, no destination is behind, and queues have no more messages without an
owner than before. Two samples of statistics have to agree on that, the second one of each instance
taken after the first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from server.cli.ctl.drain import drain
from server.cli.ctl.execution import CtlResult
from server.cli.ctl.instance import CtlError, CtlInstance, CtlStatus
from server.cli.doctor.admin_interface import AdminLogin

_POLL_INTERVAL_S: Final = 0.5
_OK: Final = "ok"
_MAX_REASONS: Final = 3
"""Reasons that are shown at once."""


@dataclass(frozen=True, slots=True)
class RollingRestartSettings:
    """How instances are restarted.

    Attributes:
        command: starts an instance again, whose name and address are in the environment; empty if
            a supervisor does.
        drain_timeout: how long a drain may take, with its unit.
        timeout_s: how long an instance may take to start and to catch up.
        scope: the destinations that have to be connected: sync or all.
    """

    command: str
    drain_timeout: str
    timeout_s: float
    scope: str


class _Sample(NamedTuple):
    """The state of an instance.

    Attributes:
        uptime: the time of its last sample of statistics.
        problems: why it is not ready, or has destinations that are behind.
        depths: the messages in its queues.
        owned: those that it owns.
    """

    uptime: str
    problems: list[str]
    depths: Counter[str]
    owned: Counter[str]


def find_instances(
    names: Sequence[str], url: str, login: AdminLogin
) -> tuple[dict[str, CtlInstance], dict[str, CtlInstance]]:
    """Return the named instances, and the others of the mesh with an admin interface, by name.

    Args:
        names: their names in the mesh, or addresses of their admin interfaces.
        url: the instance that knows the mesh.
        login: the credentials for all of them.

    Raises:
        CtlError: one does not answer or is not known, or is named twice.
    """
    mesh = CtlInstance(url, login).get_document("/amps/mesh/instances.json")
    known = {
        entry["name"]: url
        if int(entry["is_this"])
        else f"{entry['admin_scheme'] or 'http'}://{entry['admin_addr']}"
        for entry in mesh["amps"]["mesh"]["instances"]
        if entry["admin_addr"] or int(entry["is_this"])
    }
    instances: dict[str, CtlInstance] = {}
    for name in names:
        address = name if is_address(name) else known.get(name)
        if address is None:
            listed = ", ".join(known) or "none"
            text = f"there is no instance {name!r} with an admin interface; there are {listed}"
            raise CtlError(text, CtlStatus.REFUSED)
        instance = CtlInstance(address, login)
        actual = str(instance.get_document("/amps/instance/name.json")["amps"]["instance"]["name"])
        if actual in instances:
            raise CtlError(f"{actual} is named twice", CtlStatus.REFUSED)
        instances[actual] = instance
    others = {
        name: CtlInstance(address, login)
        for name, address in known.items()
        if name not in instances
    }
    return instances, others


def is_address(name: str) -> bool:
    """Return whether an instance is given by the address of its admin interface."""
    return "://" in name


class RollingRestart:
    """Restarts instances.

    Args:
        instances: the instances, by name, in the order of their restarts.
        others: the other instances of the mesh, which own messages as well.
        settings: how they are restarted.
        show: takes lines of progress.
    """

    def __init__(
        self,
        instances: Mapping[str, CtlInstance],
        others: Mapping[str, CtlInstance],
        settings: RollingRestartSettings,
        show: Callable[[str], None],
    ) -> None:
        self._instances = instances
        self._others = others
        self._settings = settings
        self._show = show

    def run(self) -> Iterator[CtlResult]:
        """Restart the instances, and yield the result of each.

        After a failure the others are left out, with the status of the failure.
        """
        failure: CtlStatus | None = None
        for name in self._instances:
            if failure is not None:
                yield CtlResult(name, "it has not been restarted", failure)
                continue
            begun = time.monotonic()
            try:
                self._restart(name)
            except CtlError as error:
                failure = error.status
                yield CtlResult(name, str(error), error.status)
            else:
                seconds = round(time.monotonic() - begun)
                yield CtlResult(name, f"{name} has been restarted, in {seconds} s.", CtlStatus.DONE)

    def _restart(self, name: str) -> None:
        """Restart an instance, and wait until all is as before.

        Raises:
            CtlError: it failed. The text says how far it has come.
        """
        samples = self._read_samples()
        if problems := _problems(samples):
            text = f"it has not been restarted: {_listed(problems)}"
            raise CtlError(text, CtlStatus.NOT_READY)
        unowned = self._unowned(samples)
        self._drain(name)
        if self._settings.command:
            self._run_command(name)
        self._wait_until_settled(name, unowned)

    def _drain(self, name: str) -> None:
        def show(state: str) -> None:
            self._show(f"{name}: {state}")

        timeout = self._settings.drain_timeout
        result = drain(self._instances[name], timeout, is_forced=False, show=show)
        if result.status is not CtlStatus.DONE:
            raise CtlError(f"it has not been restarted: {result.text}", result.status)

    def _run_command(self, name: str) -> None:
        self._show(f"{name}: {self._settings.command}")
        variables = {"AMPS_INSTANCE": name, "AMPS_INSTANCE_URL": self._instances[name].url}
        try:
            done = subprocess.run(  # noqa: S602 - the command line of the operator
                self._settings.command,
                shell=True,
                env=os.environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                timeout=self._settings.timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            text = "it has stopped, and the command that starts it has not ended in time"
            raise CtlError(text, CtlStatus.UNKNOWN) from None
        if done.returncode:
            text = f"it has stopped, and the command that starts it has failed: {done.returncode}"
            raise CtlError(text, CtlStatus.REFUSED)

    def _wait_until_settled(self, name: str, unowned: Counter[str]) -> None:
        """Wait until all instances are ready, have caught up, and own the messages of queues.

        Raises:
            CtlError: that takes too long.
        """
        deadline = time.monotonic() + self._settings.timeout_s
        last, first_uptimes = "", dict[str, str]()
        while True:
            samples = self._read_samples()
            problems = _problems(samples) or [
                f"{count} messages of queue {queue} have no owner"
                for queue, count in (self._unowned(samples) - unowned).items()
            ]
            if problems:
                first_uptimes = {}
            elif not first_uptimes:
                first_uptimes = {other: one.uptime for other, one in samples.items()}
            elif all(one.uptime != first_uptimes[other] for other, one in samples.items()):
                return
            if time.monotonic() > deadline:
                reasons = problems or ["an instance takes no samples of statistics"]
                text = f"it has been restarted, and is not as before: {_listed(reasons)}"
                raise CtlError(text, CtlStatus.NOT_READY)
            state = f"waiting: {_listed(problems)}" if problems else "ready"
            if state != last:
                self._show(f"{name}: {state}")
                last = state
            time.sleep(_POLL_INTERVAL_S)

    def _read_samples(self) -> dict[str, _Sample]:
        return {
            name: _read_sample(instance, self._settings.scope)
            for name, instance in self._instances.items()
        }

    def _unowned(self, samples: Mapping[str, _Sample]) -> Counter[str]:
        """Return how many messages of each queue no instance of the mesh owns."""
        others = (_read_sample(other, self._settings.scope) for other in self._others.values())
        mesh = [*samples.values(), *others]
        owned = sum((sample.owned for sample in mesh), Counter[str]())
        depths = Counter[str]()
        for sample in mesh:
            depths |= sample.depths  # the largest: all have the messages of a shared queue
        return depths - owned


def _read_sample(instance: CtlInstance, scope: str) -> _Sample:
    """Return the state of an instance; one that does not answer has that problem.

    Raises:
        CtlError: the user lacks a permission.
    """
    depths, owned = Counter[str](), Counter[str]()
    try:
        ready = instance.get_document(f"/readyz.json?replication={scope}")
        tree = instance.get_document("/amps/instance.json")["amps"]["instance"]
    except CtlError as error:
        return _Sample("", [str(error)], depths, owned)
    problems = [*_failed_checks(ready), *_late_destinations(tree, scope)]
    for queue in _part(tree, "queues"):
        depths[queue["id"]] = int(queue["queue_depth"])
        owned[queue["id"]] = int(queue["owned"])
    return _Sample(str(tree["uptime"]), problems, depths, owned)


def _part(tree: Mapping[str, Any], name: str) -> Any:
    """Return a part of an instance.

    Raises:
        CtlError: it is missing, because the user may not read it.
    """
    if name not in tree:
        text = f"the user lacks the permission to read /amps/instance/{name}"
        raise CtlError(text, CtlStatus.REFUSED)
    return tree[name]


def _failed_checks(ready: Mapping[str, Any]) -> Iterator[str]:
    for check in ready["checks"]:
        if check["status"] != _OK:
            yield f"{check['name']}: {check['status']}"


def _late_destinations(tree: Mapping[str, Any], scope: str) -> Iterator[str]:
    for destination in _part(tree, "replication"):
        counts = scope == "all" or destination["replication_type"] == scope
        if counts and float(destination["seconds_behind"]):
            yield f"destination {destination['name']} is behind"


def _problems(samples: Mapping[str, _Sample]) -> list[str]:
    return [f"{name}: {text}" for name, sample in samples.items() for text in sample.problems]


def _listed(problems: Sequence[str]) -> str:
    more = len(problems) - _MAX_REASONS
    return "; ".join(problems[:_MAX_REASONS]) + (f"; and {more} more" if more > 0 else "")
