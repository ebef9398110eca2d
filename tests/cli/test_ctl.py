"""`amps-ctl` at instances that run."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.support.quick import quick_command
from tests.support.server import environment, free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

ELEMENTS: Final = """
<MiniDumpDirectory>dumps</MiniDumpDirectory>
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>sow/%n.sow</FileName></Topic>
  <Topic><Name>twice</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability></Topic>
  <Topic><Name>twice</Name><MessageType>fix</MessageType><Key>/1</Key><Durability>transient</Durability></Topic>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <Semantics>at-least-once</Semantics>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work|jobs|big</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication>
  <Destination>
    <Name>away</Name><Group>others</Group><SyncType>sync</SyncType>
    <Topic><Name>jobs</Name><MessageType>json</MessageType></Topic>
    <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:1</InetAddr></Transport>
  </Destination>
</Replication>
<Actions>
  <Action>
    <On><Module>amps-action-on-admin</Module>
      <Options><Path>say</Path><RequiredParameter>What</RequiredParameter>
        <Name>Saying</Name><Description>Says something</Description></Options></On>
    <Do><Module>amps-action-do-echo-message</Module>
      <Options><Message>heard {{What}}</Message></Options></Do>
  </Action>
</Actions>
"""


def run_ctl(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*quick_command("server.cli.amps_ctl"), *words],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )


def ctl(admin: Admin, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on an instance."""
    return run_ctl(*words, "--url", f"http://127.0.0.1:{admin.port}")


def results(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The results of a command with --json."""
    document: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return document["results"]


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("ctl"), elements=ELEMENTS) as running:
        yield running


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sow compact orders", "orders!json has been compacted."),
        ("sow compact orders!json", "orders!json has been compacted."),
        ("queue enable-proxied-transfer work", "Proxied transfer of work!json is enabled."),
        ("queue disable-proxied-transfer work", "Proxied transfer of work!json is disabled."),
        ("queue purge work", "0 messages of work!json have been removed."),
        ("queue redrive work", "0 dead letters of work!json are back in their queues."),
        ("replication downgrade away", "away is no longer waited for."),
        ("replication upgrade away", "away is waited for again."),
        ("authentication reset", "authentication has been reset."),
        ("entitlement reset", "entitlement has been reset."),
        ("entitlement check /amps/administrator", "/amps/administrator is allowed."),
        ("diagnostics dump", "The state of the queues has been written to the log."),
        ("log rotate", "Log files are continued in their next files."),
        ("transport disable any-tcp", "any-tcp is disabled."),
        ("transport enable any-tcp", "any-tcp is enabled."),
        ("action run say What=this", "Saying: begun."),
    ],
)
def test_an_operation_is_executed_and_audited(admin: Admin, words: str, said: str) -> None:
    done = ctl(admin, *words.split())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{said}\n", "")
    if "check" not in words:
        assert admin.server.logs("25-0083")


def test_messages_are_moved_between_two_queues(admin: Admin) -> None:
    done = ctl(admin, "queue", "move", "work", "elsewhere")
    assert (done.returncode, "There is no queue 'elsewhere'" in done.stderr) == (1, True)
    assert ctl(admin, "queue", "move", "work").returncode == 2


def test_an_action_gets_its_variables(admin: Admin) -> None:
    assert ctl(admin, "action", "run", "say", "What=a = b, ä").returncode == 0
    assert admin.server.logs("heard a = b, ä")
    missing = ctl(admin, "action", "run", "say")
    assert (missing.returncode, "needs the parameters What" in missing.stderr) == (1, True)


def test_a_client_is_disconnected_by_its_name_or_id(admin: Admin) -> None:
    with admin.server.log_on("first victim") as first, admin.server.log_on("second") as second:
        listed = json.loads(ctl(admin, "client", "list", "--json").stdout)["entries"]
        ids = {entry["name"]: entry["id"] for entry in listed}
        done = ctl(admin, "client", "disconnect", "first victim", "--json", ids["second"], "third")
        assert done.returncode == 1
        assert [one["done"] for one in results(done)] == [True, True, False]
        assert "there is no client 'third'" in done.stderr
        assert first.is_disconnected()
        assert second.is_disconnected()


def test_a_minidump_is_written(admin: Admin) -> None:
    (result,) = results(ctl(admin, "minidump", "write", "--json"))
    assert Path(result["result"].removeprefix("Minidump written to ").removesuffix(".")).is_file()


def test_a_journal_that_is_full_is_compressed(admin: Admin) -> None:
    with admin.server.log_on("filler") as filler:
        for number in range(15):
            header = {"c": "publish", "t": "big", "a": "persisted", "s": number + 1, "cid": "p"}
            filler.send(header, b'{"a":"%s"}' % (b"x" * 1_000_000))
        wait_until(lambda: "journal" in ctl(admin, "journal", "list").stdout)
    (name, *_) = ctl(admin, "journal", "list").stdout.split()
    assert ctl(admin, "journal", "compress", name).returncode == 0
    refused = ctl(admin, "journal", "archive", name)
    assert (refused.returncode, "JournalArchiveDirectory" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("sow compact twice", "several entries are the topic 'twice'"),
        ("sow compact none", "there is no topic 'none'; there are "),
        ("replication reconnect away", "no connection with away"),
        ("action run none", "there is no action 'none'; there are say"),
    ],
)
def test_a_refusal_has_status_1_and_a_reason(admin: Admin, words: str, reason: str) -> None:
    done = ctl(admin, *words.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert done.stderr.startswith("amps-ctl: ")


@pytest.mark.parametrize(
    "words",
    [
        "sow",
        "sow compact",
        "sow list orders",
        "sow explode orders",
        "authentication reset orders",
        "entitlement check",
        "action run say What",
        "status orders",
        "transport enable any-tcp --jsno",
        "transport enable any-tcp --filter 1=1",
        "queue list --filter 1=1",
        "queue purge work --filter=",
        "nothing list",
    ],
)
def test_a_wrong_command_line_has_status_2(admin: Admin, words: str) -> None:
    done = ctl(admin, *words.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_an_instance_has_to_be_named() -> None:
    done = run_ctl("health", AMPS_ADMIN_URL="")
    assert (done.returncode, "AMPS_ADMIN_URL" in done.stderr) == (2, True)


def test_health_and_status_of_an_instance_whose_destination_is_away(admin: Admin) -> None:
    done = ctl(admin, "health")
    assert done.returncode == 3
    assert done.stdout.startswith("live: ok\nready: unavailable\n  destination away: ")
    document = json.loads(ctl(admin, "status", "--json").stdout)
    assert (document["live"]["status"], document["ready"]["status"]) == ("ok", "unavailable")
    assert document["findings"][0]["name"] == "destination away"
    assert [one["id"] for one in document["transports"]] == ["any-tcp"]
    assert [one["id"] for one in document["queues"]] == ["work!json"]
    text = ctl(admin, "status")
    assert text.returncode == 3
    assert "replication away: replication_type=sync is_connected=0" in text.stdout


def test_an_instance_that_does_not_run_has_status_4() -> None:
    done = run_ctl("health", AMPS_ADMIN_URL=f"http://127.0.0.1:{free_port()}")
    assert (done.returncode, "nothing listens there" in done.stderr) == (4, True)


def test_an_operation_without_an_answer_has_status_5() -> None:
    """It may have been executed."""

    def hang_up() -> None:
        for _ in range(2):
            connection, _address = listener.accept()
            connection.recv(1 << 16)
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=hang_up)
        thread.start()
        assert run_ctl("health", "--url", url).returncode == 4
        assert run_ctl("log", "rotate", "--url", url).returncode == 5
        thread.join(WAIT_SECONDS)


def test_an_operation_that_goes_on_has_status_5() -> None:
    """Its result will be in the log."""
    body = b'{"amps":{"administrator":{"logging":{"rotate":"It goes on."}}}}'

    def answer() -> None:
        connection, _address = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.0 202 Accepted\r\n\r\n" + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = run_ctl("log", "rotate", "--url", url)
        thread.join(WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (5, "amps-ctl: It goes on.\n")


LOGON: Final = """
<WWWAuthenticate>Basic realm="AMPS Admin"</WWWAuthenticate>
<Authentication><Module>users</Module></Authentication>
<Entitlement><Module>users</Module></Entitlement>
"""
USERS: Final = """
[roles.operator]
logon = true
admin = [{ topic = "^/amps/administrator", read = true }]

[roles.viewer]
logon = true
admin = [{ topic = "^/amps/administrator(/sow)?$", read = true }]
"""
MODULES: Final = """
<Modules><Module>
  <Name>users</Name><Library>libamperage_users.so</Library>
  <Options><FileName>users.toml</FileName></Options>
</Module></Modules>
"""


def test_credentials_are_sent_and_entitlement_decides(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(USERS)
    users.chmod(0o600)
    for name in ("operator", "viewer"):
        words = ["add", "--stdin", "--cost", "2", "--role", name, str(users), name]
        subprocess.run(
            [*quick_command("server.cli.amps_users"), *words],
            input="a-long-pass-phrase\n",
            env=environment(),
            text=True,
            check=True,
            timeout=WAIT_SECONDS,
        )
    password = tmp_path / "password"
    password.write_text("a-long-pass-phrase\n")
    with running_admin(tmp_path, LOGON, ELEMENTS + MODULES) as admin:
        anonymous = ctl(admin, "sow", "list")
        assert (anonymous.returncode, "credentials" in anonymous.stderr) == (4, True)
        operator = ("--user", "operator", "--password-file", str(password))
        assert ctl(admin, "sow", "compact", "orders", *operator).returncode == 0
        viewer = ("--user", "viewer", "--password-file", str(password))
        refused = ctl(admin, "sow", "compact", "orders", *viewer)
        assert refused.returncode == 1
        assert refused.stderr.startswith("amps-ctl: ")
        path = "/amps/administrator/sow/orders!json/compact"
        assert ctl(admin, "entitlement", "check", path, *viewer).returncode == 1


def test_a_move_needs_two_queues(admin: Admin) -> None:
    done = ctl(admin, "queue", "move", "work")
    assert done.returncode == 2
    assert "move needs QUEUE and TARGET" in done.stderr
