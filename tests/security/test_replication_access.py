"""What an instance that connects is told, and which instance it is taken to be."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from server.replication.transport.peer_addresses import comes_from, resolve
from tests.security.users import MODULES, hashed
from tests.support.replication_peer import (
    ACK,
    BEAT,
    BEGIN,
    HELLO,
    KNOWLEDGE,
    RESUME,
    WORD,
    ReplicationPeer,
    description,
)
from tests.support.server import RunningServer, free_port, running_server
from tests.support.waiting import comes_true

USERS: Final = {
    "client": 'logon = true\ntopic = [{ topic = ".*", read = true, write = true }]',
    "feed": 'replication-logon = true\nreplicated-topics = ["^feed$"]',
    "standby": 'replication-logon = true\nreplicated-topics = [".*"]',
    "shared": 'replication-logon = true\nreplicated-topics = [".*"]',
    "site": 'replication-logon = true\nreplicated-topics = [".*"]\ninstances = ["^site-"]',
}
"""Each has their name as password."""

NUMBERS: Final = count(1)
"""Of words."""

TOPIC: Final = "<Topic><Name>{}</Name><MessageType>json</MessageType></Topic>"
LOG: Final = "".join(
    (
        "<TransactionLog><JournalDirectory>journal</JournalDirectory>",
        "<JournalSize>10MB</JournalSize>",
        *(TOPIC.format(name) for name in ("feed", "secret", "pairs", "records", "jobs")),
        "</TransactionLog>",
    )
)
SOW: Final = """
<SOW>
  <Topic>
    <Name>records</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>pairs</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Queue><Name>jobs</Name><MessageType>json</MessageType></Queue>
</SOW>
"""
DESTINATION: Final = """
<Destination>
  <Name>{name}</Name><Group>{name}</Group><SyncType>async</SyncType>
  <Topic>
    <Name>secret</Name><MessageType>json</MessageType>
    <ExcludeValidation>replicate,txlog</ExcludeValidation>
  </Topic>
  <Topic>
    <Name>pairs</Name><MessageType>json</MessageType>
    <ExcludeValidation>replicate,txlog,sow</ExcludeValidation>
  </Topic>
  <Transport><Type>amps-replication</Type>{address}</Transport>
</Destination>
"""
LISTENING: Final = """
<Transport>
  <Name>replication</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr>
</Transport>
"""


@contextmanager
def instance(directory: Path, *, authenticates: bool = True) -> Iterator[tuple[RunningServer, int]]:
    """An instance that replicates `secret` to three others that are down, and its port."""
    text = "".join(
        f'[users.{name}]\npassword = "{hashed(name)}"\n{rights}\n' for name, rights in USERS.items()
    )
    (directory / "users.toml").write_text(text)
    (directory / "users.toml").chmod(0o600)
    port = free_port()
    here = f"<InetAddr>127.0.0.1:{free_port()}</InetAddr>"
    destinations = [
        DESTINATION.format(name="standby", address=here),
        DESTINATION.format(name="site-1", address=here),
        DESTINATION.format(name="far", address="<InetAddr>192.0.2.1:9</InetAddr>"),
        DESTINATION.format(name="waiting", address=""),
    ]
    elements = f"{SOW}{LOG}<Replication>{''.join(destinations)}</Replication>"
    with running_server(
        directory,
        elements=elements + (MODULES if authenticates else ""),
        transports=LISTENING.format(port=port),
    ) as server:
        yield server, port


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, int]]:
    with instance(tmp_path_factory.mktemp("main")) as running:
        server, _ = running
        with server.connect() as client:
            assert client.log_on("publisher", user_id="client", pw="client")["status"] == "success"
            for number, topic in enumerate(("secret", "records", "jobs"), 1):
                client.publish(topic, b'{"id":1}', s=number, a="persisted")
                client.receive_header()
        yield running


def as_user(peer: ReplicationPeer, user: str, **fields: Any) -> None:
    peer.greet(user=user, password=user, **fields)


def of_kind(peer: ReplicationPeer, kind: int) -> Any:
    """The fields of the next frame of a kind; others are passed over."""
    while (came := peer.receive()).kind != kind:
        pass
    return came.fields


def publisher_of(server: RunningServer) -> int:
    """The identity of the publisher, as a bookmark has it."""
    with server.connect() as client:
        client.log_on("reader", user_id="client", pw="client")
        client.subscribe("secret", "s", bm="0")
        header, _ = client.receive()
        return int(header["bm"].partition("|")[0])


def word(peer: ReplicationPeer, subject: str, *body: Any) -> None:
    """Say something to the instance."""
    said = msgspec.msgpack.encode(body)
    peer.send(WORD, "test-instance", [peer.name], next(NUMBERS), subject, said)


# Words.

WORDS: Final[dict[str, tuple[Callable[[int], tuple[Any, ...]], str]]] = {
    "a body": (lambda who: ("mend", 1, who, 1, 0), "to ask for messages of secret"),
    "a body of a record": (lambda who: ("mend", 1, who, 2, 0), "to ask for messages of records"),
    "a message of a queue": (lambda who: ("mend", 1, who, 3, 0), "to ask for messages of jobs"),
    "who owns a message": (
        lambda who: ("json/jobs/", 1, 1, [[who, 3]], 1),
        "to speak of queue jobs",
    ),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_word_about_what_is_not_replicated_is_refused(
    main: tuple[RunningServer, int], case: str
) -> None:
    """Nothing is told, and the log and the audit trail have it."""
    server, port = main
    make, refused = WORDS[case]
    subject, *body = make(publisher_of(server))
    with ReplicationPeer(port, f"peer of {case}") as peer:
        as_user(peer, "feed")
        assert peer.receive().kind == HELLO
        word(peer, subject, *body)
        if subject == "mend":
            _, _, _, about, answer = of_kind(peer, WORD)
            assert about == "mend"
            assert msgspec.msgpack.decode(answer)[-1] == b""
        action = refused.removeprefix("to ")
        assert server.logs(f"(connected to transport replication) {refused}: ")
        assert server.logs(
            "25-0082 Permission denied for user 'feed'"
            f" at 127.0.0.1:{peer.socket.getsockname()[1]} to {action}"
        )


@pytest.mark.parametrize(("user", "is_heard"), [("feed", False), ("standby", True)])
def test_what_a_comparison_has_found_is_believed_of_a_destination_only(
    main: tuple[RunningServer, int], user: str, is_heard: bool
) -> None:
    server, port = main
    topic = "records" if user == "feed" else "pairs"
    with ReplicationPeer(
        port, f"finder {user}" if user == "feed" else "standby", "standby"
    ) as peer:
        as_user(peer, user)
        keys = [f"key of {user}"]
        word(peer, "compare", 9, 1, "json", topic, [1, 1], 1, 0, keys)
        word(peer, "compare", 1, 2, "json", "nothing")
        while (said := of_kind(peer, WORD))[3] != "compare":
            pass
        assert msgspec.msgpack.decode(said[4])[0] == 3
        if is_heard:
            assert server.logs(f"key of {user}")
        else:
            assert f"key of {user}" not in server.log()


def test_what_there_is_of_entries_is_told_of_shared_topics_only(
    main: tuple[RunningServer, int],
) -> None:
    server, port = main
    who = publisher_of(server)
    found = {}
    for user in ("feed", "standby"):
        with ReplicationPeer(port, user, user) as peer:
            as_user(peer, user)
            word(peer, "records", 1, 1, 10, [[who, 1]], [[who, 3]])
            while (said := of_kind(peer, WORD))[3] != "records":
                pass
            _, _, entries = msgspec.msgpack.decode(said[4])
            found[user] = [entry[:2] for entry in entries]
    assert found == {"feed": [], "standby": [[who, 1]]}


def test_a_destination_is_told_what_is_sent_to_it(main: tuple[RunningServer, int]) -> None:
    server, port = main
    who = publisher_of(server)
    with ReplicationPeer(port, "standby", "standby") as peer:
        as_user(peer, "standby")
        for number, body in ((1, b'{"id":1}'), (2, b"")):
            word(peer, "mend", 1, who, number, 0)
            assert msgspec.msgpack.decode(of_kind(peer, WORD)[4])[-1] == body


@pytest.mark.parametrize(("user", "is_told"), [("feed", False), ("standby", True)])
def test_publishers_are_told_to_who_may_replicate_everything(
    main: tuple[RunningServer, int], user: str, is_told: bool
) -> None:
    server, port = main
    who = publisher_of(server)
    with ReplicationPeer(port, f"source {user}") as peer:
        as_user(peer, user)
        peer.send(BEGIN, "another stream", 1, 0, "", 0)
        assert of_kind(peer, RESUME)[0] is None
        had, is_last = of_kind(peer, KNOWLEDGE)
        assert is_last
        assert (who in {one[0] for one in had}) is is_told


# Greetings.


def selection(name: str, *, is_expression: bool = False) -> dict[str, Any]:
    return {
        "selection": {"name": name, "message_type": "json", "is_expression": is_expression},
        "location": {"file": "peer.xml", "line": 1},
    }


@pytest.mark.parametrize(
    ("user", "names", "told"),
    [
        ("feed", ["feed"], {"feed"}),
        ("feed", [".*"], {"feed"}),
        ("shared", [".*"], {"feed", "secret", "pairs", "records", "jobs"}),
        ("standby", [], {"secret", "pairs"}),
    ],
)
def test_an_instance_is_told_of_topics_that_it_shares(
    main: tuple[RunningServer, int], user: str, names: list[str], told: set[str]
) -> None:
    """Of files, addresses of others and destinations that are not for it, it is told nothing."""
    _, port = main
    name = "standby" if user == "standby" else "someone"
    logged = [selection(one, is_expression=one == ".*") for one in names]
    with ReplicationPeer(port, name, name) as peer:
        as_user(peer, user, description=description(name, name, logged=logged))
        said = msgspec.msgpack.decode(of_kind(peer, HELLO)[9])
    topics = {one["selection"]["name"] for one in said["logged"]}
    assert topics == told
    assert {one["name"] for one in said["stored"]} == told & {"records", "pairs", "jobs"}
    of_destinations = {
        one["selection"]["name"] for to in said["destinations"] for one in to["topics"]
    }
    assert of_destinations == told & {"secret", "pairs"}
    for to in said["destinations"]:
        assert to["name"] == name or to["addresses"] == []
    assert set(re.findall(r"'file': '([^']*)'", str(said))) == {"config.xml"}


# Which instance it is.


@pytest.mark.parametrize(
    ("user", "name", "is_served"),
    [
        ("standby", "standby", True),
        ("feed", "standby", False),
        ("shared", "standby", False),
        ("site", "site-1", True),
        ("waiting", "waiting", None),
        ("feed", "waiting", False),
        ("shared", "waiting", True),
    ],
)
def test_a_destination_is_an_instance_that_its_user_is_bound_to(
    main: tuple[RunningServer, int], user: str, name: str, is_served: bool | None
) -> None:
    """By name, or by its permissions; where it cannot be connected to, by what it may replicate."""
    server, port = main
    with ReplicationPeer(port, name, name) as peer:
        as_user(peer, user)
        if is_served is None:
            assert "wrong user or password" in peer.refusal()
            return
        hello = of_kind(peer, HELLO)
        assert hello[5] is is_served
        if is_served:
            assert of_kind(peer, BEGIN)
        else:
            begin = f"it has logged on as '{user}', who is not known to be the instance {name}"
            assert server.logs(begin)
            peer.send(ACK, 1, [])
            assert "nothing is replicated to it" in peer.refusal()


def test_permissions_that_name_instances_refuse_others(main: tuple[RunningServer, int]) -> None:
    server, port = main
    with ReplicationPeer(port, "standby", "standby") as peer:
        as_user(peer, "site")
        assert "'site' is not entitled to be the instance standby" in peer.refusal()
    assert server.logs("25-0081 Logon denied for user 'site'")


def test_an_instance_that_is_proven_takes_the_place_of_one_that_is_not(
    main: tuple[RunningServer, int],
) -> None:
    _, port = main
    with ReplicationPeer(port, "standby", "standby") as stranger:
        as_user(stranger, "feed", log="log of a stranger")
        assert of_kind(stranger, HELLO)
        with ReplicationPeer(port, "standby", "standby") as peer:
            as_user(peer, "standby", nonce=8)
            assert of_kind(peer, HELLO)[5] is True
            peer.send(BEAT)
            assert of_kind(peer, BEGIN)
            assert stranger.is_disconnected()


@pytest.mark.parametrize(
    ("name", "is_served", "entry"),
    [
        ("standby", True, None),
        ("far", False, "1E-0020 test-instance replicates nothing to its destination far"),
        ("waiting", True, "1E-0065 test-instance serves its destination waiting"),
    ],
)
def test_without_authentication_a_destination_comes_from_its_addresses(
    tmp_path: Path, name: str, is_served: bool, entry: str | None
) -> None:
    with (
        instance(tmp_path, authenticates=False) as (server, port),
        ReplicationPeer(port, name, name) as peer,
    ):
        peer.greet()
        assert of_kind(peer, HELLO)[5] is is_served
        if is_served:
            assert of_kind(peer, BEGIN)
        if entry is None:
            assert "1E-0065" not in server.log()
        else:
            assert server.logs(entry)


@pytest.mark.parametrize(
    ("peer", "at", "is_there"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::1", True),
        ("127.0.0.1", "127.0.1.1", True),
        ("::1", "127.0.0.1", True),
        ("10.0.0.1", "127.0.0.1", False),
    ],
)
def test_an_address_is_compared_by_what_it_means(peer: str, at: str, is_there: bool) -> None:
    found = asyncio.run(resolve([at, "a name that no host has"]))
    assert comes_from(peer, [at], found) is is_there
    assert not comes_from(peer, ["a name that no host has"], found)


# The mesh.


@pytest.mark.parametrize(("user", "hears"), [("feed", False), ("standby", True)])
def test_a_stranger_hears_nothing_of_other_instances(
    main: tuple[RunningServer, int], user: str, hears: bool
) -> None:
    _, port = main
    with ReplicationPeer(port, "standby", "standby") as peer:
        peer.hears_mesh = True
        as_user(peer, user)
        assert of_kind(peer, HELLO)[9]
        word(peer, "compare", 1, 1, "json", "nothing")
        subjects: list[str] = []

        def has_heard() -> bool:
            subjects.append(of_kind(peer, WORD)[3])
            return subjects[-1] == "mesh"

        if hears:
            assert comes_true(has_heard)
            return
        assert of_kind(peer, WORD)[3] == "compare"
        word(peer, "mesh", 2, ["test-instance"])
        word(peer, "compare", 1, 2, "json", "nothing")
        assert of_kind(peer, WORD)[3] == "compare"
