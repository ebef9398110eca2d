"""What can be done to an instance by requests below /amps/administrator."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import pytest

from tests.admin.support import Admin, Reply, read, running_admin
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

TOP: Final = "/amps/administrator"

ELEMENTS: Final = """
<MiniDumpDirectory>dumps</MiniDumpDirectory>
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>sow/%n.sow</FileName></Topic>
  <Queue>
    <Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>jobs</UnderlyingTopic>
    <Semantics>at-least-once</Semantics>
  </Queue>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>work|jobs|big</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions>
  <Action>
    <On><Module>amps-action-on-admin</Module>
      <Options><Path>say</Path><RequiredParameter>What</RequiredParameter>
        <Name>Saying</Name><Description>Says something</Description></Options></On>
    <Do><Module>amps-action-do-echo-message</Module>
      <Options><Message>heard {{What}} and {{other}}</Message></Options></Do>
  </Action>
</Actions>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    origins = "<AccessControlAllowOrigin>^https://friend\\.example$</AccessControlAllowOrigin>"
    directory = tmp_path_factory.mktemp("admin")
    with running_admin(directory, origins, elements=ELEMENTS) as running:
        yield running


def below(document: Any) -> Any:
    return document["amps"]["administrator"]


def post(admin: Admin, path: str, body: str, **headers: str) -> Reply:
    """Send a form."""
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=WAIT_SECONDS)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", path, body, kind | named)
        return read(connection)
    finally:
        connection.close()


def test_there_is_a_way_to_everything_that_can_be_done(admin: Admin) -> None:
    top = below(admin.ask(f"{TOP}.json").json)
    groups = [one["id"] for one in top]
    assert sorted(groups) == [
        "actions",
        "authorization",
        "backup",
        "backups",
        "clients",
        "diagnostics",
        "drain",
        "logging",
        "minidump",
        "queues",
        "reload",
        "replication",
        "sow",
        "transaction_log",
        "transports",
    ]
    for one in top:
        if one["id"] not in ("backup", "minidump"):  # which act
            assert admin.ask(one["path"]).status == 200
    (topic,) = below(admin.ask(f"{TOP}/sow.json").json)["sow"]
    assert topic["compact"] == f"{TOP}/sow/orders!json/compact"
    page = admin.ask(f"{TOP}/queues/work!json").text
    assert f'href="{TOP}/queues/work!json/enable_proxied_transfer"' in page


def test_a_client_is_disconnected(admin: Admin) -> None:
    with admin.server.log_on("victim") as victim:

        def number() -> str | None:
            listed = below(admin.ask(f"{TOP}/clients.json").json)["clients"]
            return next((one["id"] for one in listed if one["name"] == "victim"), None)

        found = number()
        assert found is not None
        assert admin.ask(f"{TOP}/clients/{found}/disconnect", "HEAD").status == 405
        assert number() == found
        reply = admin.ask(f"{TOP}/clients/{found}/disconnect")
        assert (reply.status, "victim is disconnected" in reply.text) == (200, True)
        assert victim.is_disconnected()
    assert admin.server.logs(f"{TOP}/clients/{found}/disconnect requested by 127.0.0.1")
    assert admin.ask(f"{TOP}/clients/{found}/disconnect").status == 404


def test_a_transport_is_disabled_and_enabled(admin: Admin) -> None:
    (name,) = [one["id"] for one in below(admin.ask(f"{TOP}/transports.json").json)["transports"]]
    state = f"/amps/instance/transports/{name}/is_enabled"
    assert admin.ask(f"{TOP}/transports/{name}/disable.json").json == {
        "amps": {"administrator": {"transports": {name: {"disable": f"{name} is disabled."}}}}
    }
    admin.comes(state, "0")
    assert post(admin, f"{TOP}/transports/{name}/enable", "").status == 200
    admin.comes(state, "1")
    with admin.server.log_on("again"):
        pass


def test_what_is_done_once_says_so(admin: Admin) -> None:
    for path, said in {
        "/sow/orders!json/compact": "orders!json has been compacted.",
        "/queues/work!json/enable_proxied_transfer": "Proxied transfer of work!json is enabled.",
        "/authorization/entitlement/reset": "entitlement has been reset.",
        "/authorization/authentication/reset": "authentication has been reset.",
        "/diagnostics/dump": "The state of the queues has been written to the log.",
    }.items():
        reply = admin.ask(TOP + path)
        assert (reply.status, said in reply.text) == (200, True), reply.text
    admin.comes("/amps/instance/queues/work!json/proxied_transfer", "1")
    assert admin.server.logs("31-0010 ")


def test_a_minidump_has_what_grows_and_what_waits(admin: Admin) -> None:
    admin.comes("/amps/instance/sow/orders!json/valid_keys", "0")
    reply = admin.ask(f"{TOP}/minidump.json")
    assert reply.status == 200
    said = below(reply.json)["minidump"]
    assert said.startswith("Minidump written to ")
    text = Path(said.removeprefix("Minidump written to ").removesuffix(".")).read_text()
    for part in (
        "instance/sow at 2",
        "orders!json memory_bytes",
        "work!json queue_depth",
        "\ntasks: ",
    ):
        assert part in text


REPLICATING: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>jobs</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication>
  <Destination>
    <Name>away</Name><Group>others</Group><SyncType>sync</SyncType>
    <Topic><Name>jobs</Name><MessageType>json</MessageType></Topic>
    <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{away}</InetAddr></Transport>
  </Destination>
</Replication>
"""


def test_a_destination_is_downgraded_and_upgraded(tmp_path: Path) -> None:
    with running_admin(tmp_path, elements=REPLICATING.format(away=free_port())) as admin:
        kind = "/amps/instance/replication/away/replication_type"
        admin.comes(kind, "sync")
        assert admin.ask(f"{TOP}/replication/away/downgrade").status == 200
        admin.comes(kind, "async")
        assert "already" in admin.ask(f"{TOP}/replication/away/downgrade").text
        assert admin.ask(f"{TOP}/replication/away/upgrade").status == 200
        admin.comes(kind, "sync")
        reply = admin.ask(f"{TOP}/replication/away/reconnect")
        assert (reply.status, "no connection with away" in reply.text) == (409, True)


def test_full_journals_are_listed_and_done_with_all_older_ones(admin: Admin) -> None:
    where = f"{TOP}/transaction_log/journals"

    def full() -> list[str]:
        listed = below(admin.ask(f"{where}.json").json)["transaction_log"]["journals"]
        return [one["id"] for one in listed]

    with admin.server.log_on("filler") as filler:
        body = b'{"a":"%s"}' % (b"x" * 1_000_000)
        for number in range(35):
            header = {"c": "publish", "t": "big", "a": "persisted", "s": number + 1, "cid": "p"}
            filler.send(header, body)
        wait_until(lambda: len(full()) >= 3)
    first, second, *others = full()
    refused = admin.ask(f"{where}/{first}/archive")
    assert (refused.status, "JournalArchiveDirectory" in refused.text) == (409, True)
    assert admin.ask(f"{where}/{second}/compress").status == 200
    for journal in (first, second):
        admin.comes(f"/amps/instance/transaction_log/journals/{journal}/file_name", f"{journal}.gz")
    assert full() == [first, second, *others], "what is compressed is called as before"
    last = others.pop(0)
    for operation in ("compress", "remove"):  # also while it is under way
        assert admin.ask(f"{where}/{last}/{operation}").status == 200
    wait_until(lambda: full() == others)


def test_an_action_runs_with_the_parameters_of_the_request(admin: Admin) -> None:
    (listed,) = below(admin.ask(f"{TOP}/actions.json").json)["actions"]
    assert (listed["id"], listed["name"], listed["description"]) == (
        "say",
        "Saying",
        "Says something",
    )
    missing = admin.ask(f"{TOP}/actions/say?what=nothing")
    assert (missing.status, "What" in missing.text) == (400, True)
    assert admin.ask(f"{TOP}/actions/say?What=one&other=two").status == 200
    assert admin.server.waits_for(lambda log: "heard one and two" in log)
    assert post(admin, f"{TOP}/actions/say", "What=three&other=four%20five").status == 200
    assert admin.server.waits_for(lambda log: "heard three and four five" in log)


@pytest.mark.parametrize("group", ["transport", "transports"])
def test_it_can_be_asked_whether_something_may_be_done(admin: Admin, group: str) -> None:
    path = f"{TOP}/authorization/entitlement/{group}/amps-admin/check"
    checked = f"{TOP}/transports/none/disable"
    inner = below(admin.ask(f"{path}.json?path={checked}").json)["authorization"]["entitlement"]
    assert inner == {group: {"amps-admin": {"check": "true"}}}
    assert admin.ask(path).status == 400


FOREIGN: Final = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Referer": "https://evil.example/page"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_of_other_sites_have_nothing_done(admin: Admin, headers: dict[str, str]) -> None:
    reply = admin.ask(f"{TOP}/actions/say?What=evil", **headers)
    assert reply.status == 403
    assert post(admin, f"{TOP}/actions/say", "What=evil", **headers).status == 403
    assert admin.ask(f"{TOP}/actions/say?What=good").status == 200
    assert admin.server.waits_for(lambda log: "heard good" in log)
    assert "heard evil" not in admin.server.log()


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://friend.example", "Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-origin", "X_Requested_With": "console"},
        {"User_Agent": "curl/8.5.0"},
    ],
)
def test_our_pages_and_those_that_are_allowed_do(admin: Admin, headers: dict[str, str]) -> None:
    assert admin.ask(f"{TOP}/actions/say?What=fine", **headers).status == 200


@pytest.mark.parametrize(
    "headers",
    [{"Sec_Fetch_Site": "none"}, {"Sec_Fetch_Site": "same-origin"}, {"User_Agent": "Mozilla/5.0"}],
)
def test_a_browser_is_shown_a_form_instead_of_acting(admin: Admin, headers: dict[str, str]) -> None:
    """Any page can have it send a GET; the form's POST has an Origin."""
    reply = admin.ask(f"{TOP}/actions/say?other=%22form%3E", **headers)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert f'<form method="post" action="{TOP}/actions/say">' in reply.text
    assert 'name="other" value="&quot;form&gt;"' in reply.text
    assert '<input name="What">' in reply.text
    refused = admin.ask(f"{TOP}/actions/say.json?What=unasked", **headers)
    assert (refused.status, "X-Requested-With" in refused.text) == (405, True)
    assert admin.ask(f"{TOP}/actions/say?What=asked").status == 200
    assert admin.server.waits_for(lambda log: "heard asked" in log)
    assert "heard unasked" not in admin.server.log()


@pytest.mark.parametrize("name", ["AMPS_INSTANCE_NAME", "AMPS_BYTE_22", "AMPS_MINIDUMP_PATH"])
def test_a_request_sets_no_variables_of_the_instance(admin: Admin, name: str) -> None:
    reply = admin.ask(f"{TOP}/actions/say?What=fine&{name}=evil")
    assert (reply.status, name in reply.text) == (409, True)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "<resource id='actions'><name></name>"),
        ("/actions", "<resource id='say'><name>Saying</name><description>Says something</desc"),
        ("/diagnostics/dump", "<diagnostics><dump>The state of the queues has been written"),
    ],
)
def test_what_can_be_done_as_xml(admin: Admin, path: str, expected: str) -> None:
    reply = admin.ask(f"{TOP}{path}.xml")
    assert reply.headers["content-type"].startswith("application/xml")
    assert ElementTree.fromstring(reply.text).tag == "amps"
    assert "<administrator>" in reply.text
    assert expected in reply.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing", 404),
        ("/clients/999999/disconnect", 404),
        ("/sow/orders!json/explode", 404),
        ("/transports/none/disable", 404),
        ("/replication/none/downgrade", 404),
        ("/diagnostics/dump/deeper", 404),
    ],
)
def test_what_is_not_there_is_said(admin: Admin, path: str, status: int) -> None:
    reply = admin.ask(TOP + path)
    assert (reply.status, TOP in reply.text) == (status, True)
    assert post(admin, TOP, "").status == 405
