"""Other instances replicate the topics only that their user may."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any, Final

from tests.admin.support import ask
from tests.replication.topologies import Link, Topology
from tests.security.entitled import MODULE, SECURITY, write_documents
from tests.support.cluster import cluster
from tests.support.raw import QUICK_ACKS, RawPeer
from tests.support.server import free_port

ONE_WAY: Final = Topology("one way", (Link("A", "B", is_sync=True),), ())
ALL: Final = {"logon": True, "topic": [{"topic": ".*", "read": True, "write": True}]}
RESET: Final = "/amps/administrator/authorization/entitlement/reset"


def documents(*replicated: str) -> dict[str, dict[str, Any]]:
    """What may be done at the destination: by clients everything, by the source some topics."""
    source = {"replication-logon": True, "replicated-topics": replicated}
    return {"all": ALL, getpass.getuser(): source}


def numbers(peer: RawPeer, count: int) -> list[tuple[str, int]]:
    """The next messages."""
    received = [peer.receive() for _ in range(count)]
    return [(header["t"], json.loads(body)["n"]) for header, body in received]


def test_what_may_not_be_replicated_is_left_out(tmp_path: Path) -> None:
    """What comes with it is recorded, and the source is not held up; a reset asks anew."""
    port = free_port()
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        "<Entitlement><Module>amps-default-entitlement-module</Module></Entitlement></Admin>"
    )
    at_b = f"<Modules>{MODULE}</Modules>{SECURITY}{admin}"
    with cluster(tmp_path, ONE_WAY, elements="", of_each={"B": at_b}) as instances:
        write_documents(tmp_path / "B", documents("^open"))
        instances.start()
        source, target = instances["A"].server, instances["B"].server
        with (
            source.log_on("p", opts=QUICK_ACKS) as publisher,
            target.log_on("s", user_id="all") as peer,
        ):
            assert peer.subscribe("^(open|closed)", "s")["status"] == "success"

            def publish(first: int) -> None:
                topics = ("open-1", "closed", "open-2", "closed", "open-1")
                for number, topic in enumerate(topics, first):
                    publisher.publish(topic, b'{"n":%d}' % number, s=number, a="persisted")
                while publisher.receive_header()["s"] < first + 4:
                    pass

            publish(1)
            assert numbers(peer, 3) == [("open-1", 1), ("open-2", 3), ("open-1", 5)]
            said = f"'{getpass.getuser()}' is not entitled to replicate to topic 'closed'"
            assert target.logs("1D-0022")
            assert target.logs(said)
            write_documents(tmp_path / "B", documents("^open", "closed"))
            assert ask(port, RESET).status == 200
        with target.log_on("s2", user_id="all") as peer:
            peer.subscribe("^(open|closed)", "s")
            with source.log_on("p", opts=QUICK_ACKS) as publisher:
                publisher.publish("closed", b'{"n":6}', s=6, a="persisted")
                publisher.receive_header()
            assert numbers(peer, 1) == [("closed", 6)]
