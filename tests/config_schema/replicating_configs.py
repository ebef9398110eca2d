"""Builds configurations of instances that replicate to each other, and describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.topology import InstanceDescription, TopologyFinding, describe
from config_schema.validate import validate
from tests.config_schema.program import Program

PORTS = {"a": 9101, "b": 9102, "c": 9103, "d": 9104}


def topic(name: str, *more: str) -> str:
    return f"<Topic><Name>{name}</Name><MessageType>json</MessageType>{''.join(more)}</Topic>"


def excluding(*checks: str) -> str:
    return f"<ExcludeValidation>{','.join(checks)}</ExcludeValidation>"


def filtered(text: str) -> str:
    return f"<Filter>{text}</Filter>"


def queue(kind: str = "Queue", name: str = "jobs", of: str = "orders", more: str = "") -> str:
    return (
        f"<{kind}><Name>{name}</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>{of}</UnderlyingTopic>{more}</{kind}>"
    )


def records(name: str = "orders", *more: str, key: str = "/id") -> str:
    return topic(name, f"<Key>{key}</Key><FileName>%n.sow</FileName>", *more)


VIEW = (
    "<Topic><Name>base</Name><MessageType>json</MessageType><Key>/id</Key><FileName>%n.sow</FileName>"
    "</Topic><View><Name>orders</Name><MessageType>json</MessageType>"
    "<UnderlyingTopic>base</UnderlyingTopic><Projection><Field>/id</Field></Projection>"
    "<Grouping><Field>/id</Field></Grouping></View>"
)

DOWNGRADE = (
    "<Actions><Action><On><Module>amps-action-on-schedule</Module>"
    "<Options><Every>1s</Every></Options></On>"
    "<Do><Module>amps-action-do-downgrade-replication</Module>"
    "<Options><Age>9s</Age></Options></Do></Action></Actions>"
)


NAME, NEITHER = "only a name", "neither name nor group"
"""Groups of a destination that has none."""


@dataclass(frozen=True)
class To:
    """A destination; `topics` stands in it as it is."""

    peer: str
    topics: str = topic("orders")
    group: str = ""
    address: str = "localhost:{port}"
    sync: str = "async"
    passes: str = "<PassThrough>.*</PassThrough>"
    kind: str = "amps-replication"

    def text(self) -> str:
        address = self.address.format(port=PORTS.get(self.peer))
        transport = f"<InetAddr>{address}</InetAddr>" if address else ""
        return (
            f"<Destination>{self._names()}<SyncType>{self.sync}</SyncType>{self.passes}"
            f"{self.topics}<Transport><Type>{self.kind}</Type>{transport}</Transport></Destination>"
        )

    def _names(self) -> str:
        name = "" if self.group == NEITHER else f"<Name>{self.peer}</Name>"
        group = self.group or f"group-{self.peer}"
        return name if group in (NAME, NEITHER) else f"{name}<Group>{group}</Group>"


@dataclass(frozen=True)
class Config:
    """A configuration."""

    name: str
    to: tuple[To, ...]
    group: str = ""
    log: str = topic("orders")
    sow: str = ""
    listens: str = "{port}"
    more: str = DOWNGRADE

    def text(self) -> str:
        address = self.listens.format(port=PORTS.get(self.name))
        log = f"<TransactionLog><JournalDirectory>j</JournalDirectory>{self.log}</TransactionLog>"
        kind = "amps-replication" if address else "tcp"
        return (
            f"<AMPSConfig><Name>{self.name}</Name><Group>{self.group or 'group-' + self.name}"
            f"</Group><Transports><Transport><Name>in</Name><Type>{kind}</Type>"
            f"<InetAddr>{address or 9107}</InetAddr></Transport></Transports>"
            f"<SOW>{self.sow}</SOW>{log if self.log else ''}"
            f"<Replication>{''.join(one.text() for one in self.to)}</Replication>"
            f"{self.more}</AMPSConfig>"
        )


@dataclass(frozen=True)
class Pair:
    """`a` and `b` replicate `orders` to each other, and differ from that in what is given."""

    expected: list[str] = field(default_factory=list)
    a: Mapping[str, Any] = field(default_factory=dict)
    b: Mapping[str, Any] = field(default_factory=dict)
    to_b: Mapping[str, Any] = field(default_factory=dict)
    to_a: Mapping[str, Any] = field(default_factory=dict)

    def configs(self) -> list[Config]:
        return [
            replace(Config("a", (replace(To("b"), **self.to_b),)), **self.a),
            replace(Config("b", (replace(To("a"), **self.to_a),)), **self.b),
        ]


def described(path: Path) -> InstanceDescription:
    problems = Problems()
    document = load(str(path), defines={}, environ={}, problems=problems)
    assert document is not None
    spec = compile_config(validate(document, problems), Program(), problems)
    assert spec is not None, [str(problem) for problem in problems]
    return describe(spec)


def descriptions(configs: list[Config], directory: Path) -> list[InstanceDescription]:
    found = []
    for number, config in enumerate(configs):
        path = directory / f"{number}-{config.name}.xml"
        path.write_text(config.text())
        found.append(described(path))
    return found


def listed(findings: list[TopologyFinding]) -> list[str]:
    """What was found: warnings in brackets."""
    return [
        f"{Path(one.problem.location.file).stem[2:]} "
        + (one.check if one.is_error else f"({one.check})")
        for one in findings
    ]
