"""What permissions cost a message that is published and delivered.

    python -m benchmarks entitlement

The table has the processor time of a message of 256 B from one client to one and to ten others:
without an entitlement module, with one that allows all of the topic, and with limits that all
messages match. Publishers send runs, as most do, so that what is paid is paid per message. Servers
take turns. The aim is that a permission without limits costs at most 5%.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from benchmarks.harness import amperage
from benchmarks.tables import print_table

RUNS: Final = 7
SUBSCRIBERS: Final = (1, 10)
FILTER: Final = "/qty >= 0"
PERMISSIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "everything allowed": {"read": True, "write": True},
    "a filter for publishes": {"read": True, "write": FILTER},
    "a filter for reading": {"read": FILTER, "write": True},
    "a select list": {"read": True, "write": True, "select": "-/,+/qty,+/price"},
}

_CONFIGURATION: Final = """
<Modules><Module><Name>one</Name><Library>benchmarks.entitlement</Library></Module></Modules>
<Entitlement><Module>one</Module><Options><Which>{which}</Which></Options></Entitlement>
"""


class Everybody:
    """Gives all users the same permissions; see docs/security.md.

    Args:
        which: the name of the permissions.
    """

    def __init__(self, which: str) -> None:
        self._which = which

    async def permissions(self, user: str) -> Mapping[str, Any]:  # noqa: ARG002 - see above
        """The permission document of a user."""
        return {"logon": True, "topic": [{"topic": ".*", **PERMISSIONS[self._which]}]}


def create_entitlement(name: str, options: Mapping[str, Sequence[str]]) -> Everybody:  # noqa: ARG001 - as servers call it
    """Make the module that servers ask which are measured."""
    return Everybody(options["Which"][0])


def main() -> None:
    """Measure and print."""
    elements = {"no module": ""}
    elements |= {which: _CONFIGURATION.format(which=which) for which in PERMISSIONS}
    costs: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(amperage(text)) for name, text in elements.items()}
        for _ in range(RUNS):
            for subscribers in SUBSCRIBERS:
                for name, server in servers.items():
                    measured = server.load("-size", "256", "-secs", "2", "-subs", str(subscribers))
                    costs.setdefault((name, subscribers), []).append(measured["srv_cpu_us_msg"])
    medians = {key: statistics.median(values) for key, values in costs.items()}
    rows = [
        [name]
        + [
            text
            for count in SUBSCRIBERS
            for text in (
                f"{medians[name, count]:.2f}",
                f"{100 * (medians[name, count] / medians['no module', count] - 1):+.0f}%",
            )
        ]
        for name in servers
    ]
    head = ["", *(cell for count in SUBSCRIBERS for cell in (f"1 to {count}", ""))]
    print_table(f"Processor time of a message, us (median of {RUNS} runs, in turns)", head, rows)


if __name__ == "__main__":
    main()
