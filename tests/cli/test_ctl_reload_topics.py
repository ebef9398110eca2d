"""`amps-ctl reload`: topics, views and queues are added and removed while clients are connected."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, refused, reloaded, running
from tests.cli.test_ctl import ctl
from tests.cli.topic_elements import (
    conflated,
    queue,
    recorded,
    records,
    topic,
    view,
)
from tests.sql.support import TRANSPORT, SqlServer
from tests.support.cluster import PAIR, cluster
from tests.support.queues import consume, done, take
from tests.support.server import free_port, running_configuration
from tests.support.sow import query
from tests.support.unreadable import Trouble
from tests.support.waiting import wait_until

HEADER_SIZE: Final = 4096
"""Bytes at the begin of a file of records, which an opening changes."""
LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>logged-.*</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
SOW: Final = f"""
<SOW>
  {topic("orders", "<FileName>orders.sow</FileName>")}
  <Topic>
    <Name>many</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^many-</Pattern>
    <Durability>transient</Durability>
  </Topic>
</SOW>
"""


def add(admin: Admin, elements: str, section: str = "SOW") -> None:
    """Write elements into a section of the configuration."""
    edit(admin, f"</{section}>", f"{elements}</{section}>")


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path, elements=LOG + SOW) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "elements", "log"),
    [
        ("plain", "<FileName>plain.sow</FileName>", ""),
        ("plain", "<Durability>transient</Durability>", ""),
        ("plain", "<FileName>plain.sow</FileName><HashIndex><Key>/v</Key></HashIndex>", ""),
        ("logged-file", "<FileName>logged.sow</FileName>", ""),
        ("logged-memory", "<Durability>transient</Durability>", ""),
        ("plain", "<FileName>plain.sow</FileName>", recorded("plain")),
        ("plain", "<Durability>transient</Durability>", recorded("p.*n")),
    ],
)
def test_a_topic_is_added(admin: Admin, tmp_path: Path, name: str, elements: str, log: str) -> None:
    with admin.server.log_on("subscriber") as subscriber, admin.server.log_on("other") as other:
        subscriber.subscribe(name, "by name")
        other.subscribe(".*", "by expression", filter="/id > 0")
        add(admin, topic(name, elements))
        add(admin, log, "TransactionLog")
        assert ctl(admin, "reload", "--dry-run").returncode == 0
        assert records(subscriber, name) is None
        assert not list(tmp_path.glob("[lp]*.sow"))
        reloaded(admin)
        assert records(subscriber, name) == []
        with admin.server.log_on("publisher") as publisher:
            for number in (1, 2, 1):
                publisher.publish(name, b'{"id":%d,"v":%d}' % (number, number))
            publisher.flush()
        for peer, sub_id in ((subscriber, "by name"), (other, "by expression")):
            heard = [peer.receive() for _ in range(3)]
            assert [header["sids"] for header, _ in heard] == [sub_id] * 3
            assert [body for _, body in heard] == [
                b'{"id":%d,"v":%d}' % (number, number) for number in (1, 2, 1)
            ]
        assert records(subscriber, name) == [b'{"id":1,"v":1}', b'{"id":2,"v":2}']
        admin.comes(f"/amps/instance/sow/{name}!json/valid_keys", "2")
    admin.server.stop(signal.SIGKILL)
    text = configuration(admin.server).read_text()
    with (
        running_configuration(tmp_path, text, admin.server.port) as again,
        again.log_on("afterwards") as peer,
    ):
        is_kept = "FileName" in elements or "logged" in name or log
        kept = [b'{"id":1,"v":1}', b'{"id":2,"v":2}'] if is_kept else []
        assert records(peer, name) == kept


def test_records_expire(admin: Admin) -> None:
    add(admin, topic("short", "<Durability>transient</Durability><Expiration>100ms</Expiration>"))
    with admin.server.log_on("peer") as peer:
        peer.subscribe("short|long", "1", opts="oof")
        reloaded(admin)
        peer.publish("short", b'{"id":1}')
        assert [peer.receive()[0]["c"] for _ in range(2)] == ["p", "oof"]
        assert records(peer, "short") == []


def test_records_of_a_removed_topic_are_freed(admin: Admin) -> None:
    """They do not expire, and need no stable storage."""
    short = topic("short", "<Durability>transient</Durability><Expiration>1s</Expiration>")
    add(admin, short)
    with admin.server.log_on("peer") as peer:
        reloaded(admin)
        peer.subscribe("short", "1", opts="oof")
        peer.publish("short", b'{"id":1}', a="persisted")
        assert {peer.receive()[0]["c"] for _ in range(2)} == {"p", "ack"}
        edit(admin, short, "")
        reloaded(admin)
        time.sleep(1.5)
        assert peer.hears_nothing()
        add(admin, short)
        reloaded(admin)
        assert records(peer, "short") == []
    assert "01-0004" not in admin.server.log()


def test_messages_are_replayed_from_the_reload_on(admin: Admin) -> None:
    with admin.server.log_on("peer") as peer:
        peer.publish("more", b'{"id":1}')
        peer.flush()
        add(admin, recorded("more"), "TransactionLog")
        reloaded(admin)
        peer.publish("more", b'{"id":2}')
        peer.subscribe("more", "1", bm="0")
        assert peer.receive()[1] == b'{"id":2}'
        peer.publish("more", b'{"id":3}')
        assert peer.receive()[1] == b'{"id":3}'


@pytest.mark.parametrize(
    ("elements", "section", "reason"),
    [
        (
            topic("more-many", "<Pattern>^p-</Pattern><Durability>transient</Durability>"),
            "SOW",
            "topic many may have records of the same names",
        ),
        (topic("many-1"), "SOW", "topic many has its records"),
        (topic("counts") + topic("many-1"), "SOW", "topic many has its records"),
        (queue("heard", "logged-new"), "SOW", "subscriptions that exist would get no"),
        (recorded("orders"), "TransactionLog", "the records of topic orders exist"),
    ],
)
def test_a_topic_is_refused(
    admin: Admin, tmp_path: Path, elements: str, section: str, reason: str
) -> None:
    with admin.server.log_on("peer") as peer:
        peer.subscribe("heard", "1")
        peer.publish("logged-1", b'{"id":1}')
        peer.flush()
        before = sorted(path.name for path in tmp_path.iterdir())
        edit(admin, f"<{section}>", f"<{section}>{elements}")
        line = next(line for line in refused(admin).splitlines() if reason in line)
        assert "needs a restart: " in line
        assert "config.xml:" in line
        assert sorted(path.name for path in tmp_path.iterdir()) == before
        assert records(peer, "counts") is None


def test_views_and_conflated_topics_are_added(admin: Admin) -> None:
    with admin.server.log_on("peer") as peer, admin.server.log_on("subscriber") as subscriber:
        for number in range(2_000):
            peer.publish("orders", b'{"id":%d,"g":%d,"v":1}' % (number, number % 3))
        peer.flush()
        add(
            admin, view("counts", "orders") + conflated("copies", "orders") + view("sums", "counts")
        )
        subscriber.subscribe("counts|copies", "1", filter="/g = 1")
        reloaded(admin)
        assert records(peer, "counts") == [
            b'{"g":0,"n":667,"v":667.0}',
            b'{"g":1,"n":667,"v":667.0}',
            b'{"g":2,"n":666,"v":666.0}',
        ]
        assert len(records(peer, "copies") or ()) == 2_000
        assert len(records(peer, "sums") or ()) == 3
        peer.publish("orders", b'{"id":0,"g":1,"v":5}')
        heard = sorted(subscriber.receive()[1] for _ in range(2))
        assert heard == [b'{"g":1,"n":668,"v":672.0}', b'{"id":0,"g":1,"v":5}']
        peer.flush()
        assert b'{"g":0,"n":666,"v":666.0}' in (records(peer, "counts") or ())
        for name in ("counts", "sums"):
            admin.comes(f"/amps/instance/views/{name}!json/queue_depth", "0")


def test_a_view_of_a_new_topic_is_added(admin: Admin) -> None:
    add(admin, topic("plain") + view("counts", "plain"))
    reloaded(admin)
    with admin.server.log_on("peer") as peer:
        peer.publish("plain", b'{"id":1,"g":1,"v":2}')
        peer.flush()
        assert records(peer, "counts") == [b'{"g":1,"n":1,"v":2.0}']


@pytest.mark.parametrize(
    "elements", ["<FileName>x.sow</FileName>", "<Durability>transient</Durability>"]
)
def test_records_are_made_from_the_log(admin: Admin, elements: str) -> None:
    with admin.server.log_on("peer") as peer:
        for number in range(5_000):
            peer.publish("logged-1", b'{"id":%d,"g":1,"v":1}' % (number % 1_000))
            peer.publish("logged-2", b'{"id":%d}' % number)
        peer.flush()
        add(admin, topic("logged-1", elements) + view("counts", "logged-1"))
        reloaded(admin)
        assert len(records(peer, "logged-1") or ()) == 1_000
        assert records(peer, "counts") == [b'{"g":1,"n":1000,"v":1000.0}']


def test_a_reload_is_refused_if_the_log_cannot_be_read(tmp_path: Path) -> None:
    """Nothing has changed then, and the next reload does all."""
    sign = tmp_path / "sign"
    added = topic("logged-1", "<FileName>x.sow</FileName>") + queue("work", "logged-1")
    with (
        running_admin(tmp_path, elements=LOG + SOW, prepare=Trouble(sign)) as admin,
        admin.server.log_on("peer") as peer,
    ):
        peer.publish("logged-1", b'{"id":1}')
        peer.flush()
        add(admin, added)
        edit(admin, topic("orders", "<FileName>orders.sow</FileName>"), "")
        sign.write_text(f"read {errno.EIO}")
        assert ctl(admin, "reload", "--dry-run").returncode == 0
        before = running(admin)
        done = ctl(admin, "reload")
        assert done.returncode == 1
        assert os.strerror(errno.EIO) in done.stderr
        assert running(admin) == before
        assert not (tmp_path / "x.sow").exists()
        assert records(peer, "orders") == []
        assert records(peer, "logged-1") is None
        sign.unlink()
        reloaded(admin)
        assert records(peer, "orders") is None
        assert records(peer, "logged-1") == [b'{"id":1}']
        assert records(peer, "work") == [b'{"id":1}']


def test_a_file_with_keys_of_another_key_is_refused(admin: Admin, tmp_path: Path) -> None:
    """Also by a dry run, and it stays as it is."""
    plain = topic("plain", "<FileName>plain.sow</FileName>")
    file = tmp_path / "plain.sow"
    add(admin, plain)
    reloaded(admin)
    with admin.server.log_on("peer") as peer:
        peer.publish("plain", b'{"id":1,"other":2}')
        peer.flush()
    edit(admin, plain, "")
    admin.server.stop()
    text = configuration(admin.server).read_text()
    with running_configuration(tmp_path, text, admin.server.port) as server:
        again = Admin(admin.port, server)
        wait_until(lambda: again.ask("/amps.json").status == 200, server.log)
        before = file.read_bytes()
        add(again, plain.replace("/id", "/other"))
        assert "plain.sow may have SOW keys of another Key" in refused(again)
        assert file.read_bytes()[HEADER_SIZE:] == before[HEADER_SIZE:]
        edit(again, plain.replace("/id", "/other"), plain)
        reloaded(again)
        with server.log_on("peer") as peer:
            assert records(peer, "plain") == [b'{"id":1,"other":2}']


@pytest.mark.parametrize("point", ["epoch", "now"])
def test_a_queue_is_added(admin: Admin, tmp_path: Path, point: str) -> None:
    with admin.server.log_on("peer") as peer:
        if point == "now":
            peer.publish("logged-work", b'{"id":0}')
        else:
            peer.publish("logged-work", b'{"id":1}')
        peer.flush()
        add(admin, queue("work", "logged-work", f"<RecoveryPoint>{point}</RecoveryPoint>"))
        reloaded(admin)
        for number in (1, 2) if point == "now" else (2,):
            peer.publish("logged-work", b'{"id":%d}' % number)
        with admin.server.log_on("consumer") as consumer:
            consume(consumer, "work")
            (header, body), _ = take(consumer, 2)
            assert body == b'{"id":1}'
            assert done(consumer, "work", bm=header["bm"]) == 1
        admin.comes("/amps/instance/queues/work!json/queue_depth", "1")
        peer.flush()
        assert [message["id"] for message in query(peer, "work").messages] == [2]
    admin.server.stop(signal.SIGKILL)
    text = configuration(admin.server).read_text()
    with (
        running_configuration(tmp_path, text, admin.server.port) as again,
        again.log_on("afterwards") as consumer,
    ):
        consume(consumer, "work")
        assert take(consumer, 1)[0][1] == b'{"id":2}'
        assert consumer.hears_nothing()


def test_topics_are_removed(admin: Admin, tmp_path: Path) -> None:
    added = topic("plain") + view("counts", "plain") + conflated("copies", "orders")
    add(admin, added)
    reloaded(admin)
    with admin.server.log_on("peer") as peer, admin.server.log_on("subscriber") as subscriber:
        for name in ("plain", "counts", "copies", "orders"):
            subscriber.subscribe(name, name)
        peer.publish("plain", b'{"id":1,"g":1,"v":2}')
        assert [subscriber.receive()[0]["t"] for _ in range(2)] == ["plain", "counts"]
        edit(admin, topic("plain"), "")
        assert "topic 'plain' of type 'json' has not been defined" in refused(admin)
        edit(admin, view("counts", "plain") + conflated("copies", "orders"), "")
        edit(admin, topic("orders", "<FileName>orders.sow</FileName>"), "")
        reloaded(admin)
        for name in ("plain", "counts", "copies", "orders"):
            assert records(peer, name) is None
            peer.publish(name, b'{"id":2}')
            assert subscriber.receive()[1] == b'{"id":2}'
        assert (tmp_path / "orders.sow").exists()
        wait_until(
            lambda: admin.ask("/amps/instance/sow/orders!json").status == 404,
            lambda: "it is still listed",
        )
        add(admin, added.replace("orders", "plain"))
        reloaded(admin)
        assert records(peer, "plain") == records(peer, "counts") == records(peer, "copies") == []
        add(admin, topic("orders", "<FileName>orders.sow</FileName>"))
        assert "orders.sow is open until the instance stops" in refused(admin)


def test_tables_of_sql_follow(tmp_path: Path) -> None:
    port = free_port()
    transport = TRANSPORT.format(port=port, type="tcp", elements="")
    with (
        running_admin(tmp_path, elements=LOG + SOW, transports=transport) as admin,
        SqlServer(admin.server, port).connect() as connection,
    ):
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM plain")
        add(admin, topic("plain") + view("counts", "plain"))
        reloaded(admin)
        with admin.server.log_on("publisher") as peer:
            peer.publish("plain", b'{"id":1,"g":1,"v":2}')
            peer.flush()
        assert connection.execute("SELECT id, v FROM plain").fetchall() == [(1, 2)]
        assert connection.execute("SELECT n FROM counts").fetchall() == [(1,)]
        edit(admin, topic("plain") + view("counts", "plain"), "")
        reloaded(admin)
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM plain")


def test_new_topics_are_replicated(tmp_path: Path) -> None:
    ports = {name: free_port() for name in ("A", "B")}
    section = "<Admin><InetAddr>127.0.0.1:{}</InetAddr><Interval>1s</Interval></Admin>"
    of_each = {name: section.format(port) for name, port in ports.items()}
    with cluster(tmp_path, PAIR, of_each=of_each) as instances:
        instances.start()
        admins = [Admin(port, instances[name].server) for name, port in ports.items()]
        for admin in admins:
            add(admin, topic("plain", "<FileName>plain.sow</FileName>"))
            reloaded(admin)
        with admins[0].server.log_on("one") as one, admins[1].server.log_on("other") as other:
            one.publish("plain", b'{"id":1}')
            wait_until(lambda: records(other, "plain") == [b'{"id":1}'], instances.logs)
