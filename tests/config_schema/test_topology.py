"""Configurations verified against each other: which check finds what, and what excludes it.

Each case is a pair that fits, `a` and `b`, with something changed in one of them or both. What is
found is listed as "file check", with the file of the instance that has to be changed or to exclude
it. The words are for golden_together/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config_schema.problems import Problems
from config_schema.topology import (
    InstanceDescription,
    check_link,
    check_topology,
)
from tests.config_schema.replicating_configs import (
    NAME,
    NEITHER,
    VIEW,
    Config,
    Pair,
    To,
    described,
    descriptions,
    excluding,
    filtered,
    listed,
    queue,
    records,
    topic,
)
from tests.config_schema.test_compile_golden import EXPECTED, write_files

GOLDEN = Path(__file__).parent / "golden_together"
TWO = topic("orders") + topic("trades")
JOBS = topic("orders") + topic("jobs")
ALL = topic(".*")
QUEUES = {"to_b": {"topics": JOBS}, "to_a": {"topics": JOBS}}
PATTERN = "<Pattern>^orders</Pattern>"


def both(**changes: str) -> dict[str, Mapping[str, Any]]:
    return {"a": changes, "b": changes}


def both_ways(**changes: str) -> dict[str, Mapping[str, Any]]:
    return {"to_a": changes, "to_b": changes}


PAIRS: dict[str, Pair] = {
    "alike": Pair(),
    # txlog
    "txlog": Pair(
        ["a txlog", "a replicate"],
        a={"log": TWO},
        to_b={"topics": topic("orders") + topic("trades")},
    ),
    "txlog excluded": Pair(
        [],
        a={"log": TWO},
        to_b={"topics": topic("orders") + topic("trades", excluding("txlog", "replicate"))},
    ),
    "txlog of another type": Pair(
        ["a txlog"],
        b={"log": topic("orders").replace("json", "xml") + topic(".*s")},
        to_a={"topics": topic("orders")},
        a={"log": topic("orders") + topic("x")},
        to_b={"topics": topic("orders") + topic("x", excluding("replicate"))},
    ),
    "txlog by an expression": Pair([], b={"log": topic("^or")}),
    "txlog all by an expression": Pair([], **both(log=ALL), **both_ways(topics=ALL)),
    "txlog of an expression": Pair(
        ["a txlog"], a={"log": ALL}, to_b={"topics": topic("^or")}, to_a={"topics": topic("^or")}
    ),
    "txlog of an expression that is narrower": Pair(
        ["b replicate"],
        a={"log": ALL},
        b={"log": topic("^orders/")},
        to_b={"topics": topic("^orders/eu/")},
        to_a={"topics": topic("^orders/")},
    ),
    "txlog of an expression that is the same": Pair(
        [], **both(log=topic("^(or|tr)[a-z]+$")), **both_ways(topics=topic("^(or|tr)[a-z]+$"))
    ),
    "txlog of an expression that cannot be compared": Pair(
        ["a txlog"],
        a={"log": topic("^(or|tr)")},
        b={"log": topic("^[ot]r")},
        to_b={"topics": topic("^(or|tr)", excluding("replicate", "cascade"))},
        to_a={"topics": topic("^[ot]r", excluding("txlog", "replicate", "cascade"))},
    ),
    "txlog of what an expression finds in the log": Pair(
        ["a txlog"],
        a={"log": TWO + topic("^x/")},
        to_b={"topics": topic("^(orders|trades)$|^y", excluding("replicate", "cascade"))},
        to_a={"topics": topic("orders", excluding("cascade"))},
    ),
    "txlog of expressions that have nothing in common": Pair(
        [], a={"log": topic("orders") + topic("^x/")}, to_b={"topics": topic("^orders")}
    ),
    "txlog of a name with dots": Pair(
        [],
        a={"log": topic("fix.orders")},
        b={"log": topic("^fix")},
        **both_ways(topics=topic("fix.orders")),
    ),
    "txlog of what a queue is made from": Pair(
        [], a={"sow": queue(), "log": ALL}, b={"sow": queue()}, **QUEUES
    ),
    # replicate
    "replicate, other topics": Pair(["a replicate"], **both(log=TWO), to_b={"topics": TWO}),
    "replicate the other way": Pair(["b replicate"], **both(log=TWO), to_a={"topics": TWO}),
    "replicate excluded": Pair(
        [],
        **both(log=TWO),
        to_b={"topics": topic("orders") + topic("trades", excluding("replicate"))},
    ),
    "replicate, another type": Pair(
        ["a replicate", "b replicate"],
        **both(log=topic("orders") + topic("orders").replace("json", "xml")),
        to_a={"topics": topic("orders").replace("json", "xml")},
    ),
    "replicate by an expression": Pair([], to_a={"topics": topic("^orders$")}),
    "replicate by a narrower expression": Pair(
        ["a replicate"],
        **both(log=ALL),
        to_b={"topics": topic("^or")},
        to_a={"topics": topic("^orders/")},
    ),
    # sow
    "sow": Pair(["a sow"], a={"sow": records()}),
    "sow the other way": Pair(["b sow"], b={"sow": records()}),
    "sow on both": Pair([], **both(sow=records())),
    "sow excluded": Pair(
        ["b cascade"], a={"sow": records()}, to_b={"topics": topic("orders", excluding("sow"))}
    ),
    "sow and cascade excluded": Pair(
        [],
        a={"sow": records()},
        to_b={"topics": topic("orders", excluding("sow", "cascade"))},
        to_a={"topics": topic("orders", excluding("cascade"))},
    ),
    "sow of a topic that is not replicated": Pair([], a={"sow": records("other")}),
    "sow, a view there": Pair(["a sow"], a={"sow": records()}, b={"sow": VIEW}),
    "sow by a pattern there": Pair(
        [], a={"sow": records()}, b={"sow": records("any", PATTERN, "<KeyDomain>any</KeyDomain>")}
    ),
    "sow by the same pattern": Pair([], **both(sow=records("orders", PATTERN))),
    "sow by another pattern": Pair(
        ["a sow", "b sow"],
        a={"sow": records("orders", PATTERN)},
        b={"sow": records("orders", PATTERN.replace("orders", "o"))},
    ),
    # keys
    "keys": Pair(["a keys", "b keys"], a={"sow": records()}, b={"sow": records(key="/key")}),
    "keys in another order": Pair(
        ["a keys", "b keys"],
        a={"sow": records(key="/id</Key><Key>/x")},
        b={"sow": records(key="/x</Key><Key>/id")},
    ),
    "keys of another domain": Pair(
        ["a keys", "b keys"],
        a={"sow": records()},
        b={"sow": records("orders", "<KeyDomain>k</KeyDomain>")},
    ),
    "keys excluded": Pair(
        [],
        a={"sow": records()},
        b={"sow": records(key="/key")},
        **both_ways(topics=topic("orders", excluding("keys"))),
    ),
    # cascade
    "cascade": Pair(["a cascade"], to_a={"topics": topic("orders", excluding("keys", "sow"))}),
    "cascade excluded": Pair(
        ["b cascade"],
        to_a={"topics": topic("orders", excluding("keys"))},
        to_b={"topics": topic("orders", excluding("cascade"))},
    ),
    "cascade excluded on both": Pair(
        [],
        to_a={"topics": topic("orders", excluding("keys", "cascade"))},
        to_b={"topics": topic("orders", excluding("cascade"))},
    ),
    # replicate_filter
    "replicate_filter": Pair(
        ["a replicate_filter"], to_b={"topics": topic("orders", filtered("/x = 1"))}
    ),
    "replicate_filter, another one": Pair(
        ["a replicate_filter", "b replicate_filter"],
        to_b={"topics": topic("orders", filtered("/x = 1"))},
        to_a={"topics": topic("orders", filtered("/x = 2"))},
    ),
    "replicate_filter, the same one": Pair(
        [], **both_ways(topics=topic("orders", filtered("/x = 1")))
    ),
    "replicate_filter excluded": Pair(
        ["b cascade"],
        to_b={"topics": topic("orders", filtered("/x = 1"), excluding("replicate_filter"))},
    ),
    # queue
    "queue on both": Pair([], **both(sow=queue()), **QUEUES),
    "queue": Pair(["a queue"], a={"sow": queue()}, to_b={"topics": JOBS}, to_a={"topics": ALL}),
    "queue, a LocalQueue there": Pair(
        ["a queue"],
        a={"sow": queue()},
        b={"sow": queue("LocalQueue")},
        to_b={"topics": JOBS},
        to_a={"topics": ALL},
    ),
    "queue of an expression": Pair(["a queue"], a={"sow": queue()}, **both_ways(topics=ALL)),
    "queue that is not replicated": Pair([], a={"sow": queue()}),
    "queue, and local ones": Pair([], **both(sow=queue("LocalQueue"))),
    "queue that does not come back": Pair(
        ["a replicate"], **both(sow=queue()), to_b={"topics": JOBS}
    ),
    # queue_underlying
    "queue_underlying": Pair(
        ["a queue_underlying", "b queue_underlying"],
        a={"sow": queue(), "log": TWO},
        b={"sow": queue(of="trades"), "log": TWO},
        **both_ways(topics=TWO + topic("jobs")),
    ),
    "queue_underlying filters": Pair(
        ["a queue_underlying", "b queue_underlying"],
        a={"sow": queue(more=filtered("/x = 1"))},
        b={"sow": queue()},
        **QUEUES,
    ),
    "queue_underlying owners": Pair(
        ["a queue_underlying", "b queue_underlying"],
        a={"sow": queue("GroupLocalQueue", more="<InitialOwner>a</InitialOwner>"), "group": "g"},
        b={"sow": queue("GroupLocalQueue", more="<InitialOwner>b</InitialOwner>"), "group": "g"},
        **both_ways(topics=JOBS, group="g", sync="sync"),
    ),
    "queue_underlying owners of different queues": Pair(
        [],
        a={"sow": queue("GroupLocalQueue", more="<InitialOwner>a</InitialOwner>")},
        b={"sow": queue("GroupLocalQueue", more="<InitialOwner>b</InitialOwner>")},
        **QUEUES,
    ),
    "queue_underlying what need not be the same": Pair(
        [], a={"sow": queue(more="<LeasePeriod>9s</LeasePeriod>")}, b={"sow": queue()}, **QUEUES
    ),
    # queue_passthrough
    "queue_passthrough, straight back": Pair(
        [], **both(sow=queue()), **both_ways(topics=JOBS, passes="")
    ),
    "queue_passthrough, a pair of one group": Pair(
        [],
        **both(sow=queue(), group="g"),
        **both_ways(topics=JOBS, passes="", group="g", sync="sync"),
    ),
    "queue_passthrough, a pair of one group that is known by addresses": Pair(
        [],
        **both(sow=queue(), group="g"),
        to_b={"topics": JOBS, "passes": "", "group": "g", "sync": "sync"},
        to_a={
            "topics": JOBS,
            "passes": "",
            "group": "g",
            "sync": "sync",
            "peer": "other",
            "address": "localhost:9101",
        },
    ),
    "queue_passthrough, another instance of one group": Pair(
        ["a queue_passthrough", "b (address)"],
        **both(sow=queue(), group="g"),
        to_b={"topics": JOBS, "passes": "", "group": "g", "sync": "sync"},
        to_a={
            "topics": JOBS,
            "passes": "<PassThrough>^h</PassThrough>",
            "group": "g",
            "sync": "sync",
            "peer": "c",
            "address": "localhost:9199",
        },
    ),
    "queue_passthrough excluded": Pair(
        [],
        **both(sow=queue(), group="g"),
        **both_ways(
            topics=topic("orders") + topic("jobs", excluding("queue_passthrough")),
            passes="",
            group="g",
            sync="sync",
        ),
    ),
    # beside the checks
    "name": Pair(["a name"], b={"name": "a", "group": "group-b", "listens": "9102"}),
    "group": Pair(["a group"], to_b={"group": "other"}),
    "no group": Pair([], **both_ways(group=NAME)),
    "no group, and another name": Pair(
        ["a group"], to_b={"group": NAME, "peer": "x", "address": "localhost:9102"}
    ),
    "no group, and a name that is one": Pair([], b={"group": "b"}, **both_ways(group=NAME)),
    "neither group nor name": Pair([], **both_ways(group=NEITHER)),
    "address": Pair(["a (address)"], to_b={"address": "localhost:9999"}),
    "address of another": Pair(
        ["a (address)"], to_b={"address": "localhost:9999", "peer": "x", "group": "group-b"}
    ),
    "address of another host": Pair(
        ["a (address)"], to_b={"address": "h:9102"}, b={"listens": "i:9102"}
    ),
    "address of this host": Pair(
        [], to_b={"address": "127.0.0.1:9102"}, b={"listens": "localhost:9102"}
    ),
    "waiting": Pair([], to_b={"address": ""}),
    "waiting for one that takes nothing": Pair(["a link"], to_b={"address": ""}, b={"listens": ""}),
    "waiting for nobody": Pair(
        ["a (address)", "b replicate"], to_b={"address": "", "peer": "x", "group": "group-x"}
    ),
    "encryption": Pair(["a encryption"], to_b={"kind": "amps-replication-secure"}),
    "sync": Pair(["a (sync)", "b (sync)"], **both(group="g"), **both_ways(group="g", sync="async")),
    "sync with a way out": Pair([], **both(group="g"), **both_ways(group="g", sync="sync")),
    "sync without a way out": Pair(
        ["a (sync)", "b (sync)"], **both(group="g", more=""), **both_ways(group="g", sync="sync")
    ),
}


@pytest.mark.parametrize("case", PAIRS)
def test_pair(case: str, tmp_path: Path) -> None:
    pair = PAIRS[case]
    found = check_topology(descriptions(pair.configs(), tmp_path))
    assert listed(found) == pair.expected, [str(one.problem) for one in found]


def chain(*ways: str, **changes: Any) -> list[Config]:
    """Configurations with destinations as in "ab ba": from a to b, and from b to a."""
    sources = sorted({way[0] for way in ways} | {way[1] for way in ways})
    return [
        Config(one, tuple(replace(To(way[1]), **changes) for way in ways if way[0] == one))
        for one in sources
    ]


ALONE = {"topics": topic("orders", excluding("replicate"))}
FABRICS: dict[str, tuple[list[Config], list[str]]] = {
    "back to another of the group": (
        [
            Config("a", (To("b"),), group="g"),
            Config("b", (To("a", group="g"),)),
            Config("c", (To("b"),), group="g"),
        ],
        ["c replicate"],
    ),
    "a chain": (chain("ab", "ba", "bc", "cb"), []),
    "a chain without return": (chain("ab", "bc"), ["a replicate", "b replicate"]),
    "a chain that is not meant to return": (chain("ab", "bc", **ALONE), []),
    "a ring both ways": (chain("ab", "ba", "bc", "cb", "ca", "ac"), []),
    "a ring of three": (
        chain("ab", "bc", "ca"),
        ["a replicate", "b replicate", "c replicate", "a (ring)"],
    ),
    "a ring of four": (chain("ab", "bc", "cd", "da", **ALONE), ["a (ring)"]),
    "a ring that one link runs back": (
        chain("ab", "ba", "bc", "ca"),
        ["b replicate", "c replicate"],
    ),
    "no replication at all": ([Config("a", ()), Config("a", ())], []),
    "somebody who is not there": (chain("ab", "ba", "bc")[:2], ["b (address)"]),
}


@pytest.mark.parametrize("case", FABRICS)
def test_fabric(case: str, tmp_path: Path) -> None:
    configs, expected = FABRICS[case]
    found = check_topology(descriptions(configs, tmp_path))
    assert listed(found) == expected, [str(one.problem) for one in found]


def test_instances_on_hosts_of_their_own_have_one_port(tmp_path: Path) -> None:
    """The host, the name of the destination or the group say which is meant."""
    groups = {"a": "east", "b": "west", "c": "west"}

    def to(peer: str, address: str, name: str = "") -> To:
        return To(name or peer, group=groups[peer], address=address)

    configs = [
        Config("a", (to("b", "b.example.com:9010"), to("c", "10.0.0.3:9010", "c"))),
        Config("b", (to("a", "10.0.0.1:9010", "east"),)),
        Config("c", (to("a", "10.0.0.1:9010", "a"),), log=topic("orders") + topic("x")),
    ]
    configs = [replace(one, group=groups[one.name], listens="9010") for one in configs]
    assert listed(check_topology(descriptions(configs, tmp_path))) == []
    configs[2] = replace(configs[2], log=topic("^trades"), to=())
    assert listed(check_topology(descriptions(configs, tmp_path))) == ["a txlog", "a replicate"]


def test_a_destination_with_several_addresses_may_lead_to_each(tmp_path: Path) -> None:
    """Whoever of them is connected has to take what is sent."""
    one = Config("a", (To("b", group="west", address="h:9102</InetAddr><InetAddr>h:9103"),))
    back = (To("a"),)
    configs = [one, Config("b", back, group="west"), Config("c", back, group="west")]
    assert listed(check_topology(descriptions(configs, tmp_path))) == []
    configs[2] = replace(configs[2], log="", to=())
    assert listed(check_topology(descriptions(configs, tmp_path))) == ["a txlog", "a replicate"]


def test_descriptions_can_be_sent(tmp_path: Path) -> None:
    """What two instances tell each other gives the same findings, in either format."""
    pair = PAIRS["queue_underlying filters"]
    a, b = descriptions(pair.configs(), tmp_path)
    expected = check_link(a, a.destinations[0], b)
    assert [one.check for one in expected] == ["queue_underlying"]
    for codec in (msgspec.msgpack, msgspec.json):
        there = codec.decode(codec.encode(b), type=InstanceDescription)
        assert there == b
        assert check_link(a, a.destinations[0], there) == expected


def test_nothing_secret_is_in_a_description(tmp_path: Path) -> None:
    """Authenticators of destinations stay where they are."""
    config = Config("a", (To("b"),)).text()
    module = "<Module>amps-default-authenticator-module</Module>"
    options = "<Options><Password>hunter2</Password></Options>"
    secret = f"</InetAddr><Authenticator>{module}{options}</Authenticator></Transport></Dest"
    path = tmp_path / "a.xml"
    path.write_text(config.replace("</InetAddr></Transport></Dest", secret))
    assert "hunter2" in path.read_text()
    assert b"hunter2" not in msgspec.json.encode(described(path))


def test_what_is_mandatory_is_checked_whatever_a_peer_excludes(tmp_path: Path) -> None:
    """A configuration that excludes it is refused before; a peer may say anything."""
    a, b = descriptions(PAIRS["queue of an expression"].configs(), tmp_path)
    said = msgspec.to_builtins(a)
    for replicated in said["destinations"][0]["topics"]:
        replicated["excluded"] = ["queue", "queue_underlying", "cascade"]
    told = msgspec.convert(said, InstanceDescription)
    assert listed(check_link(told, told.destinations[0], b)) == ["a queue"]


def test_what_would_lead_back_but_for_its_group_is_named(tmp_path: Path) -> None:
    """As the instance is told that is connected to with the wrong Group."""
    a, b = descriptions(Pair([], to_b={"group": "other"}).configs(), tmp_path)
    (finding,) = check_link(b, b.destinations[0], a)
    location = a.destinations[0].location
    assert f"back to 'b' ('b' at {location} is for the Group 'other')" in str(finding.problem)
    assert "set its Group to group-b" in str(finding.problem)


@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.txt")))
def test_words(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Golden files as in test_compile_golden, with a configuration in each file."""
    golden = GOLDEN / f"{name}.txt"
    files, marker, expected = golden.read_text(encoding="utf-8").partition(EXPECTED)
    assert marker, f"{golden} has no expected lines"
    write_files(files, tmp_path)
    monkeypatch.chdir(tmp_path)
    problems = Problems()
    paths = sorted(Path().glob("*.xml"))
    for path in paths:
        problems.register_file(str(path))
    for finding in check_topology([described(path) for path in paths]):
        finding.report(problems)
    printed = "".join(f"{problem}\n" for problem in problems)
    if request.config.getoption("--update-golden"):
        golden.write_text(files + EXPECTED + printed, encoding="utf-8")
    else:
        assert printed == expected
