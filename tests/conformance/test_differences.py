"""ampServer --diff: what another configuration would change, and what that means."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from server.cli.amp_server import main
from tests.config_schema.test_settings import WHOLE

SAME: Final = 0
DIFFERENT: Final = 1
TROUBLE: Final = 2

TOPIC: Final = "<Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>"
LOGGED: Final = "    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>\n"
EXPIRY: Final = "<Expiration>1h</Expiration>"
NEW_DESTINATION: Final = (
    "<Destination><Name>three</Name><Topic><Name>orders</Name><MessageType>json</MessageType>"
    "</Topic><Transport><InetAddr>c:1</InetAddr></Transport></Destination></Replication>"
)
NEW_QUEUE: Final = (
    "<Queue><Name>more</Name><MessageType>json</MessageType>"
    "<UnderlyingTopic>orders</UnderlyingTopic></Queue></SOW>"
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are named as somebody in their directory would."""
    monkeypatch.chdir(tmp_path)


def write(name: str, *replacements: tuple[str, str]) -> str:
    text = WHOLE
    for before, after in replacements:
        assert before in text
        text = text.replace(before, after)
    Path(name).write_text(text, encoding="utf-8")
    return name


MEANINGS: Final = {
    "another port": (
        (">9007<", ">9017<"),
        (
            "clients: Transports/Transport tcp: InetAddr\n"
            "  - old.xml:6: 9007\n  + new.xml:6: 9017\n"
            "    Clients must connect to 9017; at 9007 they are refused.\n"
        ),
    ),
    "another port for instances": (
        (">9008<", ">9018<"),
        "    Instances that replicate here must connect to 9018; at 9008 they are refused.\n",
    ),
    "another file of records": (
        ("./sow/%n.sow", "./records/%n.sow"),
        "data: SOW/Topic orders (json): FileName\n",
        "./sow/orders.json.sow stays and is not read any more.",
        "from the transaction log, from its beginning on.",
    ),
    "other keys": (
        ("<Key>/id</Key>\n      <FileName>", "<Key>/number</Key>\n      <FileName>"),
        "data: SOW/Topic orders (json): Key\n",
        "the newest gets it, and the others are set aside under keys that no message has",
        "Remove ./sow/orders.json.sow before the start to have all records made anew",
        "Instances that replicate it here fail the validation keys, unless they exclude that.",
    ),
    "records in memory only": (
        (EXPIRY, f"{EXPIRY}<Durability>transient</Durability>"),
        "data: SOW/Topic orders (json): Durability\n",
        "(default)",
        "are made from the transaction log at every start",
    ),
    "slabs": (
        (EXPIRY, f"{EXPIRY}<SlabSize>10MB</SlabSize>"),
        "operation: SOW/Topic orders (json): SlabSize\n",
        "5MB (default)",
        "A file that exists keeps its own",
    ),
    "another log": (
        ("./journals", "./log"),
        "data: TransactionLog/JournalDirectory\n",
        "if nothing is there it begins empty",
        "Records in SOW files stay.",
    ),
    "another name": (
        ("<Name>one</Name>", "<Name>uno</Name>"),
        "data: Name\n",
        "the log of uno begins empty",
    ),
    "a destination more": (
        ("</Replication>", NEW_DESTINATION),
        "peers: Replication/Destination three is added\n  + new.xml:",
        "It gets what the log has of its topics, from the beginning on",
    ),
    "publishers that wait": (
        ("<SyncType>sync</SyncType>", ""),
        "peers: Replication/Destination two: SyncType\n",
        "async (default)",
    ),
    "a queue more": (
        ("</SOW>", NEW_QUEUE),
        "clients: SOW/Queue more (json) is added\n",
        "set RecoveryPoint to now",
    ),
    "a queue that is another kind of topic": (
        ("<Queue><Name>jobs", "<LocalQueue><Name>jobs"),
        "data: SOW/LocalQueue jobs (json)\n",
    ),
    "a topic of the log that another one covers": (
        (LOGGED, "    <Topic><Name>ord.*</Name><MessageType>json</MessageType></Topic>\n"),
        "TransactionLog/Topic ord.* (json) is added",
        "TransactionLog/Topic orders (json) is removed",
        "It is still recorded, by another Topic.",
    ),
    "records that do not expire": ((EXPIRY, ""), "disabled (default)", "Nothing expires any more."),
    "who may log on": (
        (
            "<Admin>",
            (
                "<Authentication><Module>amps-default-no-authentication-module</Module>"
                "</Authentication><Admin>"
            ),
        ),
        "security: Authentication/Module\n",
        "not set (default)",
        "--explain-access",
    ),
    "an action that is gone": (
        (
            "<Do><Module>amps-action-do-rotate-logs</Module></Do>",
            "<Do><Module>amps-action-do-minidump</Module></Do>",
        ),
        "Actions/Action on schedule: do minidump: Do amps-action-do-minidump is added",
        "Do amps-action-do-rotate-logs is removed",
    ),
}


@pytest.mark.parametrize("what", MEANINGS)
def test_a_change_is_located_and_explained(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    replacement, *expected = MEANINGS[what]
    assert isinstance(replacement, tuple)
    old, new = write("old.xml"), write("new.xml", replacement)
    if "<LocalQueue>" in replacement[1]:
        write("new.xml", replacement, ("</LeasePeriod></Queue>", "</LeasePeriod></LocalQueue>"))
    assert main(["--diff", old, new]) == DIFFERENT
    printed = capfd.readouterr().out
    flat = " ".join(printed.split())
    for text in expected:
        assert isinstance(text, str)
        assert text in printed or text in flat


def test_a_topic_that_is_no_longer_recorded_nor_kept(capfd: pytest.CaptureFixture[str]) -> None:
    """Entries that are gone are located where they were."""
    old = write("old.xml")
    topic = WHOLE[WHOLE.index("    <Topic>\n") : WHOLE.index("    <View>")]
    view = WHOLE[WHOLE.index("    <View>") : WHOLE.index("    <Queue>")]
    replication = WHOLE[WHOLE.index("  <Replication>") : WHOLE.index("  <Actions>")]
    new = write("new.xml", (topic, ""), (view, ""), (replication, ""), (LOGGED, ""))
    assert main(["--diff", old, new]) == DIFFERENT
    printed, said = capfd.readouterr()
    assert "data: TransactionLog/Topic orders (json) is removed\n  - old.xml:17: " in printed
    assert "data: SOW/Topic orders (json) is removed" in printed
    assert "clients: SOW/View sums (json) is removed" in printed
    assert "peers: Replication/Destination two is removed" in printed
    assert "fail the validation txlog" in " ".join(printed.split())
    assert said.startswith("4 differences (2 data, 1 peers, 1 clients); ")


def test_configurations_that_amount_to_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            ["--diff", write("old.xml"), write("new.xml", ("<LeasePeriod>60s", "<LeasePeriod>1m"))]
        )
        == SAME
    )
    assert capfd.readouterr() == ("", "old.xml and new.xml amount to the same\n")


def test_a_configuration_that_cannot_be_used_is_trouble(capfd: pytest.CaptureFixture[str]) -> None:
    old, broken = write("old.xml"), write("broken.xml", ("<Type>tcp</Type>", "<Typ>tcp</Typ>"))
    for pair in ([old, broken], [broken, old], [old, "missing.xml"]):
        assert main(["--diff", *pair]) == TROUBLE
        printed, said = capfd.readouterr()
        assert printed == ""
        assert "error: " in said
        assert said.endswith("cannot be used\n")


def test_json_says_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    old, new = write("old.xml"), write("new.xml", (">9007<", ">9017<"), ("./journals", "./log"))
    assert main(["--diff", "--json", old, new]) == DIFFERENT
    document = json.loads(capfd.readouterr().out)
    assert not document["same"]
    port, directory = document["changes"]
    assert port == {
        "kind": "changed",
        "concern": "clients",
        "element": "/AMPSConfig/Transports/Transport/InetAddr",
        "entry": [{"element": "/AMPSConfig/Transports/Transport", "name": "tcp"}],
        "old": {"value": "9007", "default": False, "file": "old.xml", "line": 6},
        "new": {"value": "9017", "default": False, "file": "new.xml", "line": 6},
        "meaning": "Clients must connect to 9017; at 9007 they are refused.",
    }
    assert (directory["concern"], directory["new"]["value"]) == ("data", "./log")
    assert main(["--diff", "--json", old, old]) == SAME
    assert json.loads(capfd.readouterr().out)["changes"] == []


PEER: Final = """<AMPSConfig>
  <Name>two</Name>
  <Transports><Transport><Name>in</Name><Type>amps-replication</Type><InetAddr>a:1</InetAddr>
  </Transport></Transports>
  <TransactionLog><JournalDirectory>./peer</JournalDirectory>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    <Topic><Name>later</Name><MessageType>json</MessageType></Topic></TransactionLog>
  <Replication><Destination><Name>one</Name><Group>group</Group>
    <Topic><Name>orders</Name><MessageType>json</MessageType>
      <ExcludeValidation>sow,cascade</ExcludeValidation></Topic>
    <Transport><InetAddr>localhost:9008</InetAddr></Transport></Destination></Replication>
</AMPSConfig>
"""


def test_links_that_would_be_refused_are_found_beforehand(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With the files of other instances; what they have against the old one is no news."""
    Path("peer.xml").write_text(PEER, encoding="utf-8")
    old, new = write("old.xml"), write("new.xml", ("<Group>group</Group>", "<Group>other</Group>"))
    assert main(["--diff", old, new, "peer.xml"]) == DIFFERENT
    printed, said = capfd.readouterr()
    assert "peers: Group\n" in printed
    assert "peers: peer.xml:8: error: " in printed
    assert "links with other instances would be refused" in said
    assert main(["--diff", old, old, "peer.xml"]) == SAME
    assert main(["--diff", old, new]) == DIFFERENT
    assert "give the files of the other instances as well" in capfd.readouterr().err


USED: Final = "<Entitlement><Module>web</Module></Entitlement>"


def test_secrets_are_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    module = (
        "<Modules><Module><Name>web</Name><Library>libamps_http_entitlement.so</Library><Options>"
        "<ResourceURI>http://localhost/u</ResourceURI><HTTPHeader>X-Key: {0}</HTTPHeader>"
        "</Options></Module></Modules><Admin>"
    )
    module = module.replace("<Admin>", f"{USED}<Admin>")
    old = write("old.xml", ("<Admin>", module.format("hidden1")))
    new = write("new.xml", ("<Admin>", module.format("hidden2")))
    for options in ([], ["--json"]):
        assert main(["--diff", *options, old, new]) == DIFFERENT
        printed, said = capfd.readouterr()
        assert "HTTPHeader" in printed
        assert "security" in printed
        assert "hidden" not in printed + said


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--diff old.xml", "--diff takes two configurations"),
        ("--diff --verify-config old.xml old.xml", "--diff and --verify-config exclude each other"),
        ("--diff --explain old.xml old.xml", "--diff and --explain exclude each other"),
        ("--diff --daemon old.xml old.xml", "--diff and --daemon exclude each other"),
        ("--diff --topic x old.xml old.xml", "--topic and --path go with --explain-access"),
    ],
)
def test_what_does_not_go_together_is_trouble(
    line: str, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write("old.xml")
    assert main(line.split()) == TROUBLE
    assert complaint in capfd.readouterr().err


def test_nothing_is_left_behind() -> None:
    """No directory of the configuration is made."""
    old, new = write("old.xml"), write("new.xml", (">9007<", ">9017<"))
    assert main(["--diff", old, new]) == DIFFERENT
    assert sorted(os.listdir()) == ["new.xml", "old.xml"]
