"""spark as a user runs it: a process with arguments, standard streams and an exit code."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.client.scripted_peer import HANG_UP, Header, accept, refuse, scripted_peer
from tests.support.quick import quick_command
from tests.support.raw import frame
from tests.support.server import RunningServer, free_port, module_server, running_server
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.transports.support import Authority, transport

ROOT = Path(__file__).parents[2]
SPARK = "server.cli.spark"


def spark(*words: str, data: bytes = b"", **environment: str) -> tuple[int, str, str]:
    """Run spark to its end: exit code, standard output, standard error."""
    done = subprocess.run(
        [*quick_command(SPARK), *words],
        cwd=ROOT,
        env=os.environ | environment,
        input=data,
        capture_output=True,
        check=False,
        timeout=WAIT_SECONDS,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def start(*words: str, command: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start spark and let it run.

    Args:
        words: its arguments.
        command: runs it; a quick one if left out.
    """
    pipe = subprocess.PIPE
    line = [*(command or quick_command(SPARK)), *words]
    return subprocess.Popen(line, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)


server = module_server()


@pytest.fixture
def at(server: RunningServer) -> list[str]:
    return ["-server", f"localhost:{server.port}", "-type", "json"]


# With the real server


def test_ping_says_that_it_connected(server: RunningServer, at: list[str]) -> None:
    user = getpass.getuser()
    line = f"Successfully connected to tcp://{user}@localhost:{server.port}/amps/json\n"
    assert spark("ping", *at) == (0, line, "")


def test_ping_shows_the_given_user_and_never_the_password(server: RunningServer) -> None:
    where = f"ann:secret@127.0.0.1:{server.port}"
    line = f"Successfully connected to tcp://ann@127.0.0.1:{server.port}/amps/json\n"
    assert spark("ping", "-server", where, "-type", "json") == (0, line, "")


def test_of_several_servers_the_first_that_can_be_reached_is_taken(server: RunningServer) -> None:
    where = f"ann:secret@localhost:{free_port()},ann:secret@localhost:{server.port}"
    line = f"Successfully connected to tcp://ann@localhost:{server.port}/amps/json\n"
    assert spark("ping", "-server", where, "-type", "json") == (0, line, "")
    done = spark("publish", "-server", where, "-type", "json", "-topic", "chaos", data=b"{}\n[]")
    assert done[0] == 0
    assert done[1].startswith("total messages published: 2 (")


def test_what_is_published_is_printed_by_a_subscriber(
    server: RunningServer, at: list[str], tmp_path: Path
) -> None:
    subscriber = start("subscribe", *at, "-topic", "^cha", "-format", "{command} {topic}: {data}")
    assert subscriber.stdout is not None
    assert server.logs("^cha")
    code, said, complaint = spark(
        "publish", *at, "-topic", "chaos", data=b'{"id":1}\n\n{"id":2}\n{"id":3}'
    )
    assert (code, complaint) == (0, "")
    assert re.fullmatch(r"total messages published: 3 \(\d+\.\d\d/s\)\n", said)
    file = tmp_path / "data.json"
    file.write_bytes(b'{"id":4}\n')
    code, said, _ = spark("publish", *at, "-topic", "chaos", "-file", str(file), "-rate", "1000")
    assert code == 0
    assert said.startswith("total messages published: 1 (")
    lines = [subscriber.stdout.readline() for _ in range(4)]
    assert lines == [b'publish chaos: {"id":%d}\n' % number for number in (1, 2, 3, 4)]
    subscriber.send_signal(signal.SIGINT)
    _, complaint_bytes = subscriber.communicate(timeout=WAIT_SECONDS)
    assert (subscriber.returncode, complaint_bytes) == (130, b"")


def test_every_tag_of_a_format_is_filled_in_as_far_as_the_server_says_it(
    server: RunningServer, at: list[str]
) -> None:
    tags = "{command}|{data}|{length}|{topic}|{timestamp}|{bookmark}{correlation_id}{expiration}"
    rest = "{lease_period}{sowkey}"
    subscriber = start("subscribe", *at, "-topic", "tagged", "-format", tags + rest, "-delta")
    assert subscriber.stdout is not None
    assert server.logs("tagged")
    assert spark("publish", *at, "-topic", "tagged", "-delta", data=b'{"id":1}\n')[0] == 0
    line = subscriber.stdout.readline().decode()
    assert re.fullmatch(r'publish\|{"id":1}\|8\|tagged\|\d{8}T\d{6}\.\d+Z\|\n', line)
    subscriber.kill()
    subscriber.communicate()


def test_compressed_connections_carry_the_same(server: RunningServer, at: list[str]) -> None:
    at = [*at, "-uriopts", "compression=zlib&tcp_nodelay=true"]
    subscriber = start("subscribe", *at, "-topic", "pressed", "-filter", "/id > 1", "-backlog", "2")
    assert subscriber.stdout is not None
    assert server.logs("pressed")
    data = b'{"id":1}\x01{"id":2}'
    assert spark("publish", *at, "-topic", "pressed", "-delimiter", "1", data=data)[0] == 0
    assert subscriber.stdout.readline() == b'{"id":2}\n'
    subscriber.kill()
    subscriber.communicate()


@pytest.mark.parametrize("protocol", ["nvfix", "xml"])
def test_transports_of_old_clients_are_spoken_to(protocol: str, tmp_path: Path) -> None:
    port, body = free_port(), {"nvfix": b"id=1;qty=2;", "xml": b"<o><id>1</id></o>"}[protocol]
    transport = (
        f"<Transport><Name>old</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>"
        f"<Protocol>{protocol}</Protocol><MessageType>{protocol}</MessageType></Transport>"
    )
    topic = (
        f"<SOW><Topic><Name>kept</Name><MessageType>{protocol}</MessageType>"
        "<Durability>transient</Durability><Key>/id</Key></Topic></SOW>"
    )
    at = ["-server", f"ann@127.0.0.1:{port}", "-proto", protocol]
    with running_server(tmp_path, transports=transport, elements=topic):
        line = f"Successfully connected to tcp://ann@127.0.0.1:{port}/{protocol}\n"
        assert spark("ping", *at) == (0, line, "")
        code, said, _ = spark("publish", *at, "-topic", "kept", data=body)
        assert (code, said[:27]) == (0, "total messages published: 1")
        code, said, _ = spark("sow", *at, "-topic", "kept")
        assert (code, said) == (0, f"{body.decode()}\n")
        code, _, complaint = spark("sow", *at, "-topic", "kept", "-orderby", "/id")
        assert (code, complaint.partition("\n")[0]) == (
            2,
            f"spark sow: -orderby needs -proto amps: {protocol} has no field for it",
        )


def test_a_unix_socket_is_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "amps.sock"
    transport = (
        "<Transport><Name>local</Name><Type>amps-unix</Type>"
        f"<Protocol>amps</Protocol><FileName>{path}</FileName></Transport>"
    )
    with running_server(tmp_path, transports=transport):
        code, said, _ = spark("ping", "-urischeme", "unix", "-server", str(path), "-type", "json")
        relative = f"ann:secret@{os.path.relpath(path, ROOT)}"
        again = spark("ping", "-urischeme", "unix", "-server", relative, "-type", "json")
    assert again == (0, f"Successfully connected to unix://ann@{path}?message_type=json\n", "")
    line = f"Successfully connected to unix://{getpass.getuser()}@{path}?message_type=json\n"
    assert (code, said) == (0, line)


def test_nothing_to_publish_is_no_mistake(at: list[str]) -> None:
    code, said, _ = spark("publish", *at, "-topic", "chaos")
    assert (code, said) == (0, "total messages published: 0 (0.00/s)\n")


def test_the_first_message_that_is_not_valid_json_is_warned_of_and_published(
    server: RunningServer, at: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "messages"
    file.write_bytes(b'{"id":1}\n{"id":2\nnotjson\n')
    publish = ("publish", *at, "-topic", "chaos", "-file", str(file))
    code, said, complaint = spark(*publish)
    assert (code, said[:29]) == (0, "total messages published: 3 (")
    warning = "spark publish: warning: message 2 is not valid JSON. "
    assert complaint.startswith(warning)
    assert complaint.endswith(': {"id":2\n')
    assert complaint.count("\n") == 1
    code, said, complaint = spark(*publish, "-rate", "1000")
    assert (code, said[:29]) == (0, "total messages published: 3 (")
    assert complaint.startswith(warning)
    assert complaint.count("\n") == 1


def test_bodies_of_connections_of_another_type_are_not_checked_for_json(
    server: RunningServer,
) -> None:
    where = ("-server", f"localhost:{server.port}", "-type", "nvfix")
    code, _, complaint = spark("publish", *where, "-topic", "chaos", data=b"id=1\x01\n")
    assert (code, complaint) == (0, "")


def test_a_topic_that_cannot_be_published_to_is_told(at: list[str]) -> None:
    code, said, complaint = spark("publish", *at, "-topic", "/AMPS/mine", data=b"{}\n")
    assert (code, said) == (1, "")
    assert complaint.startswith("spark publish: invalid topic: ")
    assert complaint.count("\n") == 1


def test_a_filter_that_cannot_be_read_is_told(at: list[str]) -> None:
    code, said, complaint = spark("subscribe", *at, "-topic", "chaos", "-filter", "/id = ")
    assert (code, said) == (1, "")
    assert complaint.startswith("spark subscribe: bad filter: ")
    assert complaint.count("\n") == 1


def test_a_message_type_that_the_server_lacks_is_told(server: RunningServer) -> None:
    where = f"localhost:{server.port}"
    code, said, complaint = spark("ping", "-server", where, "-type", "no-such-type")
    assert (code, said) == (1, "")
    user = getpass.getuser()
    assert complaint.startswith(f"Unable to log on to AMPS at {where} as {user}: ")
    assert complaint.count("\n") == 1


def test_a_missing_message_type_is_told_with_its_option(server: RunningServer) -> None:
    code, _, complaint = spark("ping", "-server", f"localhost:{server.port}")
    assert code == 1
    assert complaint.endswith("; name it with -type, such as -type json\n")


# With a server that follows a script


def records(header: Header, _body: bytes) -> list[bytes]:
    """Accept everything; a query finds two records, a deletion three, a subscription a message."""
    answers = accept(header)
    key = header.get("query_id")
    if header["c"] in ("sow", "sow_and_subscribe"):
        content = b'{"k":"1","l":1}a{"k":"2","l":1}b'
        answers += [
            frame({"c": "group_begin", "query_id": key}),
            frame({"c": "sow", "query_id": key, "t": "t", "bs": 2}, content),
            frame({"c": "group_end", "query_id": key}),
        ]
    if header["c"].endswith("subscribe"):
        keys = {"bm": "1|1|", "ts": "now"}
        answers += [frame({"c": "p", "t": "t", "sids": header["sub_id"]} | keys, b"m"), HANG_UP]
    if header["c"] == "sow_delete" and "cid" in header:
        stats = {"c": "ack", "cid": header["cid"], "a": "stats", "status": "success"}
        answers = [answers[0], frame(stats | {"records_deleted": 3})]
    return answers


def test_sow_prints_the_records_and_counts_them_apart() -> None:
    with scripted_peer(records) as peer:
        where = f"127.0.0.1:{peer.port}"
        words = ["-filter", "/a > 1", "-orderby", "/a", "-topn", "5", "-batchsize", "100"]
        code, said, complaint = spark("sow", "-server", where, "-topic", "t", *words)
        assert (code, said) == (0, "a\nb\n")
        assert re.fullmatch(r"Total messages received: 2 \(\d+\.\d\d/s\)\n", complaint)
        query = peer.header("sow")
        assert (query["f"], query["orderby"], query["top_n"], query["bs"]) == (
            "/a > 1",
            "/a",
            5,
            100,
        )


def test_a_format_with_a_timestamp_asks_for_timestamps() -> None:
    with scripted_peer(records) as peer:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        _, said, _ = spark("subscribe", *where, "-backlog", "5", "-format", "{timestamp} {data}")
        assert said == "now m\n"
        assert peer.header("subscribe")["o"] == "max_backlog=5,timestamp"


@pytest.mark.parametrize("option", ["-json", "--json"])
def test_json_is_a_line_for_each_message(option: str) -> None:
    with scripted_peer(records) as peer:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        _, said, _ = spark("sow_and_subscribe", *where, option)
        messages = [json.loads(line) for line in said.splitlines()]
        assert [(it["command"], it["data"]) for it in messages] == [
            ("sow", "a"),
            ("sow", "b"),
            ("publish", "m"),
        ]
        assert messages[-1]["timestamp"] == "now"
        assert peer.header("sow_and_subscribe")["o"] == "timestamp"


def test_sow_and_subscribe_goes_on_after_the_records() -> None:
    with scripted_peer(records) as peer:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        code, said, complaint = spark("sow_and_subscribe", *where, "-format", "{command} {data}")
        assert said == "sow a\nsow b\npublish m\n"
        assert (code, complaint) == (
            1,
            "spark sow_and_subscribe: the server closed the connection\n",
        )


def test_messages_are_copied_to_a_second_server() -> None:
    with scripted_peer(records) as peer, scripted_peer() as other:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        code, said, _ = spark("sow", *where, "-copy", f"127.0.0.1:{other.port}")
        assert (code, said) == (0, "a\nb\n")
        assert [(it["t"], body) for it, body in other.received if it["c"] == "p"] == [
            ("t", b"a"),
            ("t", b"b"),
        ]


def lease(header: Header, _body: bytes = b"") -> list[bytes]:
    """Accept everything; a subscription gets a message of a queue."""
    answers = accept(header)
    if header["c"] == "subscribe":
        leased = {"bm": "1|1|", "lp": "soon"}
        answers.append(frame({"c": "p", "t": "t", "sids": header["sub_id"]} | leased, b"m"))
    return answers


def test_messages_of_a_queue_are_acknowledged_once_printed() -> None:
    def answer(header: Header, body: bytes) -> list[bytes]:
        if header["c"] == "sow_delete":
            return [HANG_UP]
        return lease(header)

    with scripted_peer(answer) as peer:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        _, said, _ = spark("subscribe", *where, "-ack")
        assert said == "m\n"
        acknowledgement = peer.header("sow_delete")
        assert (acknowledgement["t"], acknowledgement["bm"]) == ("t", "1|1|")


def test_a_refused_acknowledgement_is_an_error() -> None:
    """The message would come again and again."""

    def answer(header: Header, body: bytes) -> list[bytes]:
        if header["c"] == "sow_delete":
            return refuse(header, "invalid topic", "no queue")
        return lease(header)

    with scripted_peer(answer) as peer:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        code, said, complaint = spark("subscribe", *where, "-ack")
        assert (code, said) == (1, "m\n")
        assert "1 message of queue 't' was not acknowledged: invalid topic: no queue" in complaint


def test_what_was_acknowledged_is_safe_when_the_command_ends() -> None:
    """It is on stable storage."""
    with scripted_peer(lease) as peer:
        subscriber = start("subscribe", "-server", f"127.0.0.1:{peer.port}", "-topic", "t", "-ack")
        wait_until(lambda: "sow_delete" in peer.commands())
        subscriber.send_signal(signal.SIGINT)
        assert subscriber.communicate(timeout=WAIT_SECONDS) == (b"m\n", b"")
        assert subscriber.returncode == 130
        assert peer.commands()[-1] == "flush"
        assert peer.header("flush")["a"] == "persisted"


def test_sow_delete_says_how_many_records_went() -> None:
    with scripted_peer(records) as peer:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        code, said, _ = spark("sow_delete", *where, "-filter", "1=1")
        assert code == 0
        assert re.fullmatch(r"Deleted 3 records in \d+ms\.\n", said)
        _, said, _ = spark("sow_delete", *where, data=b"a\nb\n")
        assert said.startswith("Deleted 6 records in ")
        assert peer.bodies("sow_delete") == [b"", b"a", b"b"]


def test_a_deletion_by_filter_and_file_is_neither() -> None:
    where = ["-server", "h:1", "-topic", "t"]
    code, _, complaint = spark("sow_delete", *where, "-filter", "1=1", "-file", "f")
    assert (code, complaint.count("\n")) == (2, 1)


def test_a_refusal_is_one_line() -> None:
    def answer(header: Header, _body: bytes) -> list[bytes]:
        if header["c"] == "sow":
            return refuse(header, "invalid topic", "t keeps\nno records")
        return accept(header)

    with scripted_peer(answer) as peer:
        where = ["-server", f"127.0.0.1:{peer.port}", "-topic", "t"]
        line = "spark sow: invalid topic: t keeps no records\n"
        assert spark("sow", *where) == (1, "", line)


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    def endless(header: Header, _body: bytes) -> list[bytes]:
        if header["c"] != "subscribe":
            return accept(header)
        message = frame({"c": "p", "t": "t", "sids": header["sub_id"]}, b"x" * 1000)
        return accept(header) + [message * 100] * 100

    with scripted_peer(endless) as peer:
        process = start("subscribe", "-server", f"127.0.0.1:{peer.port}", "-topic", "t")
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"x" * 1000 + b"\n"
        process.stdout.close()
        assert process.wait(WAIT_SECONDS) == 0
        assert process.stderr.read() == b""


# Without a server


def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    line = "Unable to connect to AMPS at 127.0.0.1:1: connection refused\n"
    assert spark("ping", "-server", "127.0.0.1:1") == (1, "", line)


COMPLAINTS = [
    (["pong"], 2, "spark pong: unknown command pong; did you mean ping?"),
    (["help", "xyz"], 2, "unknown command xyz; known are ping, publish"),
    (["ping", "-sever", "h:1"], 2, "spark ping: unknown option -sever; did you mean -server?"),
    (["ping", "-server", "h"], 1, "expected host:port"),
    (["ping", "-server", "h:1", "-urischeme", "protected"], 1, "tcp://, tcps://"),
    (["ping", "-server", "h:1", "-authenticator", "com.x.Factory"], 2, "module:factory"),
    (["ping", "-server", "h:1", "-cafile", "x"], 2, "-cafile is for connections with TLS"),
    (["ping", "-server", "h:1", "-secure", "-cafile", "/no/x"], 2, "/no/x: No such file"),
    (["ping", "-server", "h:1", "-secure", "-key", "x"], 2, "without the -certificate"),
    (
        ["ping", "-server", "h:1", "-passwordenv", "A", "-authenticator", "os:getpid"],
        2,
        "-authenticator and -passwordenv are given: expected one of them",
    ),
    (["ping", "-server", "h:1", "-authenticator", "os:nothing"], 2, "has no attribute"),
    (["ping", "-server", "h:1", "-authenticator", "os:getpid"], 2, "no amperage.Authenticator"),
    (["subscribe", "-server", "h:1", "-topic", "t", "-format", "{x}"], 2, "unknown tag {x}"),
    (["sow", "-server", "h:1", "-topic", "t", "-format", "x", "-json"], 2, "exclude each other"),
]


@pytest.mark.parametrize(("words", "code", "said"), COMPLAINTS)
def test_a_mistake_is_one_line_and_an_exit_code(words: list[str], code: int, said: str) -> None:
    returned, output, complaint = spark(*words)
    assert (returned, output) == (code, "")
    assert said in complaint
    assert complaint.count("\n") == 1


def test_a_trust_store_must_be_pem(tmp_path: Path) -> None:
    store = tmp_path / "cacerts"
    store.write_bytes(b"\xfe\xed\xfe\xed, a Java key store")
    options = f"-Xmx1g -Djavax.net.ssl.trustStore={store}"
    code, _, complaint = spark("ping", "-server", "h:1", "-secure", AMPS_SPARK_OPTS=options)
    assert code == 2
    assert "holds no PEM certificates" in complaint
    code, _, complaint = spark(
        "ping", "-server", "h:1", "-secure", AMPS_SPARK_OPTS=f"{options}.missing"
    )
    assert "No such file" in complaint


def test_an_authenticator_of_our_own_makes_the_credentials(tmp_path: Path) -> None:
    (tmp_path / "tickets.py").write_text(
        "from amperage import Credentials\n"
        "class Tickets:\n"
        "    def authenticate(self, given):\n"
        "        return Credentials(given.user, 'ticket for ' + given.user)\n"
        "    def retry(self, answered):\n"
        "        return answered\n"
    )
    with scripted_peer() as peer:
        where = ["-server", f"ann@127.0.0.1:{peer.port}"]
        words = [*where, "-authenticator", "tickets:Tickets"]
        assert spark("ping", *words, PYTHONPATH=str(tmp_path))[0] == 0
        assert peer.header("logon")["pw"] == "ticket for ann"


@pytest.mark.parametrize("how", ["passwordfile", "passwordenv", "passwordcmd"])
def test_a_password_may_be_kept_elsewhere(tmp_path: Path, how: str) -> None:
    (tmp_path / "secret").write_text("of ann\n")
    value = {
        "passwordfile": str(tmp_path / "secret"),
        "passwordenv": "OF_ANN",
        "passwordcmd": """sh -c 'echo "of $AMPS_USER_NAME"'""",
    }[how]
    with scripted_peer() as peer:
        words = ["-server", f"ann@127.0.0.1:{peer.port}", f"-{how}", value]
        assert spark("ping", *words, OF_ANN="of ann")[0] == 0
        assert (peer.header("logon")["user_id"], peer.header("logon")["pw"]) == ("ann", "of ann")


def test_a_password_that_is_not_there_is_said(server: RunningServer, at: list[str]) -> None:
    returned, _, complaint = spark("ping", *at, "-passwordfile", "/no/where")
    assert returned == 1
    assert complaint == "spark ping: /no/where: No such file or directory\n"


def test_a_password_is_hidden_from_who_lists_processes(server: RunningServer) -> None:
    words = ["-server", f"ann:s3cret@localhost:{server.port}", "-type", "json", "-topic", "hidden"]
    running = start("subscribe", *words, command=[sys.executable, "-m", SPARK])
    try:
        line = Path(f"/proc/{running.pid}/cmdline")
        wait_until(lambda: b"ann:***@localhost" in line.read_bytes())
        assert b"s3cret" not in line.read_bytes()
    finally:
        running.kill()
        running.communicate()


def test_certificates_are_shown_and_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "known")
    stranger = Authority(tmp_path, "stranger")
    certificate, key = authority.issue("localhost")
    port = free_port()
    elements = (
        f"<InetAddr>127.0.0.1:{port}</InetAddr><Protocol>amps</Protocol>"
        f"<Certificate>{certificate}</Certificate><PrivateKey>{key}</PrivateKey>"
        f"<VerifyClient>true</VerifyClient><CAFile>{authority.file}</CAFile>"
    )
    own, own_key = map(str, authority.issue("client"))
    with running_server(tmp_path, transports=transport("secure", "tcps", elements)):
        words = ["ping", "-server", f"localhost:{port}", "-type", "json", "-secure"]
        shown = ["-certificate", own, "-key", own_key]
        assert spark(*words, "-cafile", str(authority.file), *shown)[0] == 0
        assert spark(*words, "-cafile", str(authority.file))[0] == 1
        _, _, complaint = spark(*words, "-cafile", str(stranger.file), *shown)
        assert "the server's certificate is not trusted" in complaint
