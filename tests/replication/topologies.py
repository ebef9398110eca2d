"""Who replicates to whom, and where publishers go."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Link:
    """That an instance replicates to another one."""

    source: str
    destination: str
    is_sync: bool = True
    pass_through: tuple[str, ...] = (".*",)


@dataclass(frozen=True)
class Topology:
    """Who replicates to whom, and where publishers go."""

    name: str
    links: tuple[Link, ...]
    homes: tuple[tuple[str, ...], ...]  # of each publisher, the instances that it may go to
    groups: dict[str, str] = field(default_factory=dict)

    @property
    def instances(self) -> list[str]:
        return sorted({one for link in self.links for one in (link.source, link.destination)})

    @property
    def is_sync(self) -> bool:
        return all(link.is_sync for link in self.links)


def both(*pairs: tuple[str, str], is_sync: bool = True) -> tuple[Link, ...]:
    links = []
    for one, other in pairs:
        links += [Link(one, other, is_sync), Link(other, one, is_sync)]
    return tuple(links)


TOPOLOGIES = {
    each.name: each
    for each in (
        Topology("pair", both(("A", "B")), (("A", "B"), ("B", "A"))),
        Topology("async", both(("A", "B"), is_sync=False), (("A", "B"), ("B", "A"))),
        Topology(
            "hub",
            both(("H", "A"), ("H", "B"), ("H", "C")),
            (("A", "H"), ("B", "C"), ("H", "A")),
        ),
        Topology("chain", both(("A", "B"), ("B", "C")), (("A", "B"), ("C", "B"))),
        Topology(
            "ring", (Link("A", "B"), Link("B", "C"), Link("C", "A")), (("A",), ("B",), ("C",))
        ),
        Topology(
            "mesh",
            both(("A", "B"), ("B", "C"), ("A", "C")),
            (("A", "B"), ("B", "C"), ("C", "A")),
        ),
        Topology(
            "square",
            both(("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")),
            (("A", "B"), ("C", "D"), ("D",)),
        ),
        Topology(
            "groups",
            (
                *both(("A", "B"), ("C", "D")),
                *both(("A", "C"), ("A", "D"), ("B", "C"), ("B", "D"), is_sync=False),
            ),
            (("A", "B"), ("C", "D"), ("B", "A")),
            {"A": "East", "B": "East", "C": "West", "D": "West"},
        ),
        Topology(
            "regions",
            (
                *both(("A", "B"), ("C", "D")),
                Link("A", "C", False, ("East",)),
                Link("B", "D", False, ("East",)),
                Link("C", "A", False, ("West",)),
                Link("D", "B", False, ("West",)),
            ),
            (("A", "B"), ("C", "D")),
            {"A": "East", "B": "East", "C": "West", "D": "West"},
        ),
    )
}
