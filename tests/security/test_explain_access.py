"""ampServer --explain-access: what a user may do, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.security.http_support import MODULE
from tests.security.test_http_entitlement_only import ONLY
from tests.security.users import MODULES, USERS, write_users
from tests.support.server import ROOT, amp_server
from tests.support.web_service import Asked, Reply, document, web_service

CONFIGURATION: Final = """<AMPSConfig>
  <Name>explained</Name>
  {modules}
  <SOW>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
      <Durability>transient</Durability>
    </Topic>
    {sow}
  </SOW>
  <Admin><InetAddr>127.0.0.1:8085</InetAddr></Admin>
  <Transports>
    <Transport>
      <Name>any-tcp</Name><Type>tcp</Type><InetAddr>127.0.0.1:9007</InetAddr>
      <Protocol>amps</Protocol>
    </Transport>
    <Transport>
      <Name>peers</Name><Type>amps-replication</Type><InetAddr>127.0.0.1:9017</InetAddr>
    </Transport>
  </Transports>
  <TransactionLog>
    <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
    <Topic><Name>trades</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
</AMPSConfig>
"""

ANN: Final = """user 'ann' of config.xml

transport any-tcp (127.0.0.1:9007)
  authentication  users: libamperage_users.so, takes the passwords of a file of users
                  users.toml:9: users.ann has a password
  entitlement     users: libamperage_users.so, takes permissions from a file of users
  log on          yes                users.toml:3: roles.trader: logon is true
  orders read     where /desk = 7    users.toml:5: roles.trader: topic, entry 1: read is /desk = 7
  orders write    yes                users.toml:5: roles.trader: topic, entry 1: write is true
  trades read     no                 no entry is about it
  trades write    no                 no entry is about it
  prices-1 read   fields -/,+/price  users.toml:6: roles.trader: topic, entry 2: read is true
  prices-1 write  no                 users.toml:6: roles.trader: topic, entry 2 has no write

transport peers (127.0.0.1:9017)
  authentication  users: libamperage_users.so, takes the passwords of a file of users
                  users.toml:9: users.ann has a password
  entitlement     users: libamperage_users.so, takes permissions from a file of users
  replicate           no  no entry is about it
  orders replicate    no  no entry is about it
  trades replicate    no  no entry is about it
  prices-1 replicate  no  no entry is about it

transport amps-admin (127.0.0.1:8085)
  authentication  users: libamperage_users.so, takes the passwords of a file of users
                  users.toml:9: users.ann has a password
  entitlement     users: libamperage_users.so, takes permissions from a file of users
  /amps/instance read          no  no entry is about it
  /amps/host read              no  no entry is about it
  /amps/administrator read     no  no entry is about it
  /console read                no  no entry is about it
  /metrics read                no  no entry is about it
  /amps/instance/clients read  no  no entry is about it
"""

NOBODY: Final = """
<Authentication><Module>amps-default-no-authentication-module</Module></Authentication>
"""

CERTIFICATES: Final = """
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><UserFromCertificate>true</UserFromCertificate></Options>
</Authentication>
"""

SIMPLE: Final = """
<Modules><Module>
  <Name>simple</Name><Library>libamps_simple_access_entitlement.so</Library>
</Module></Modules>
<Entitlement>
  <Module>simple</Module><Options><AllowedTopics>^orders</AllowedTopics></Options>
</Entitlement>
"""


def explain(directory: Path, modules: str, *words: str, sow: str = "") -> str:
    (directory / "config.xml").write_text(CONFIGURATION.format(modules=modules, sow=sow))
    done = amp_server("--explain-access", *words, "--config", "config.xml", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert not list(directory.glob("journal*"))
    return done.stdout


def test_a_file_of_users_is_explained(tmp_path: Path) -> None:
    text = USERS.replace('"orders", read = true', '"orders", read = "/desk = 7"')
    write_users(tmp_path, text.replace("read = true }", 'read = true, select = "-/,+/price" }', 1))
    said = explain(
        tmp_path, MODULES, "ann", "--topic", "prices-1", "--path", "/amps/instance/clients"
    )
    assert [line.split() for line in said.splitlines()] == [
        line.split() for line in ANN.splitlines()
    ]


@pytest.mark.parametrize(
    ("modules", "user", "lines"),
    [
        ("", "ann", ["authentication none is configured: everything is allowed", "log on yes"]),
        (
            "",
            "ann",
            ["authenticates no name: entitlement is asked about an anonymous user"],
        ),
        (MODULES, "guest", ["users.toml:23: users.guest has no password", "'guest' cannot log on"]),
        (MODULES, "mallory", ["users.toml has no user 'mallory'", "'mallory' cannot log on"]),
        (
            MODULES,
            "carol",
            [
                "log on no users.toml:20: users.carol: logon is false",
                "/amps/instance read yes users.toml:21: users.carol: admin, entry 1: read is true",
            ],
        ),
        (
            CERTIFICATES,
            "ann",
            ["asks for a certificate that names the user", "log on yes"],
        ),
        (
            NOBODY,
            "ann",
            ["no user may log on, 'ann' included", "'ann' cannot log on"],
        ),
        (
            SIMPLE,
            "ann",
            [
                "orders read yes AllowedTopics ^orders matches it",
                "trades write no AllowedTopics ^orders does not match it",
            ],
        ),
        (
            "<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>",
            "ann",
            ["log on no", "orders read no"],
        ),
    ],
)
def test_each_module_is_explained(
    tmp_path: Path, modules: str, user: str, lines: list[str]
) -> None:
    write_users(tmp_path)
    said = [" ".join(line.split()) for line in explain(tmp_path, modules, user).splitlines()]
    for line in lines:
        assert line in said


LOGICAL: Final = """
<Topic>
  <Name>bins</Name><Pattern>^bin/</Pattern><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability>
</Topic>
<ConflatedTopic>
  <Name>slow-bins</Name><UnderlyingTopic>bins</UnderlyingTopic><MessageType>json</MessageType>
  <Interval>1s</Interval><TopicFormat>slow/%n</TopicFormat>
</ConflatedTopic>
<Topic>
  <Name>/AMPS/Audit</Name><MessageType>json</MessageType><Key>/Audit/timestamp</Key>
  <Durability>transient</Durability>
</Topic>
"""

SLOW: Final = "^(a+)+$"
LONG: Final = "a" * 30 + "b"
"""A name for which it takes too many steps to tell whether that matches."""

FEW: Final = """
<Modules><Module>
  <Name>simple</Name><Library>libamps_simple_access_entitlement.so</Library>
</Module></Modules>
<Entitlement><Module>simple</Module><Options>{allowed}</Options></Entitlement>
"""


@pytest.mark.parametrize(
    ("allowed", "topic", "line"),
    [
        ("^bins$", "bin/1", "bin/1 read yes as bins, which has its Pattern: AllowedTopics ^bins$"),
        ("^bins$", "slow/bin/1", "slow/bin/1 read no as slow-bins, which has its Pattern:"),
        ("^slow-bins$", "slow/bin/1", "slow/bin/1 read yes as slow-bins, which has its Pattern:"),
        ("^bin/", "bin/1", "bin/1 read no as bins, which has its Pattern: AllowedTopics ^bin/"),
        ("^bin/", "orders", "orders read no AllowedTopics ^bin/ does not match it"),
        (f"{SLOW}|^orders", LONG, f"{LONG} read no AllowedTopics: it takes too many steps to tell"),
        ("", LONG, f"{LONG} write no DeniedTopics: it takes too many steps to tell"),
        ("", "orders", "orders write yes AllowedTopics .* matches it"),
        ("AMPS", "/AMPS/ClientStatus", "/AMPS/ClientStatus write no only the server"),
        ("AMPS", "/AMPS/Audit", "/AMPS/Audit write yes AllowedTopics AMPS matches it; to delete"),
        ("AMPS", "/AMPS/devnull", "/AMPS/devnull write yes AllowedTopics AMPS matches it"),
    ],
)
def test_it_is_said_what_the_server_would_say(
    tmp_path: Path, allowed: str, topic: str, line: str
) -> None:
    """Of topics of a Pattern their `Name` is asked; nobody publishes to event topics."""
    options = f"<AllowedTopics>{allowed}</AllowedTopics>"
    modules = FEW.format(allowed=options if allowed else f"<DeniedTopics>{SLOW}</DeniedTopics>")
    said = explain(tmp_path, modules, "ann", "--topic", topic, sow=LOGICAL)
    assert any(" ".join(one.split()).startswith(line) for one in said.splitlines()), said


def test_programs_read_json(tmp_path: Path) -> None:
    write_users(tmp_path)
    found = json.loads(explain(tmp_path, MODULES, "bob", "--json", "--topic", "prices"))
    client, peers, admin = found["transports"]
    assert (client["can_log_on"], peers["can_log_on"]) == (True, False)
    assert admin["transport"] == "amps-admin"
    assert client["asked_about"] == "bob"
    prices = [right for right in client["rights"] if right["what"] == "prices"]
    assert [(right["access"], right["allowed"]) for right in prices] == [
        ("read", True),
        ("write", False),
    ]
    assert prices[0]["rule"] == "users.toml:16: users.bob: topic, entry 1: read is true"


def test_a_module_that_cannot_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "config.xml").write_text(CONFIGURATION.format(modules=MODULES, sow=""))
    done = amp_server("--explain-access", "ann", "config.xml", cwd=tmp_path)
    assert done.returncode == 1
    assert "users.toml: cannot be read: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("--topic", "a"), ("--path", "/a"), ("--json",)])
def test_what_goes_with_it_does_not_go_alone(words: tuple[str, ...]) -> None:
    done = amp_server(*words, str(ROOT / "sample_configs" / "first_message.xml"))
    assert done.returncode == 2
    assert "--explain-access USER" in done.stderr


def test_the_sample_is_explained() -> None:
    done = amp_server("--explain-access", "bob", "sample_configs/secure.xml", cwd=ROOT)
    said = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert (
        "prices read fields -/,+/symbol,+/price"
        " sample_configs/parts/users.toml:16: roles.reader: topic, entry 1: read is true"
    ) in said


def explained(directory: Path, modules: str, user: str) -> tuple[list[str], str]:
    """What is said: the lines, without blanks in front, and what goes to standard error."""
    (directory / "config.xml").write_text(CONFIGURATION.format(modules=modules, sow=""))
    done = amp_server("--explain-access", user, "config.xml", cwd=directory)
    assert done.returncode == 0, done.stderr
    return [" ".join(line.split()) for line in done.stdout.splitlines()], done.stderr


def test_a_web_service_is_asked_where_it_says_something(tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return document(logon=True, topic=[{"topic": "orders", "read": "/a = 1"}])

    with web_service(answer) as service:
        only, _ = explained(tmp_path, ONLY.format(port=service.port, options=""), "ann")
        assert service.asked
        service.asked.clear()
        both, _ = explained(tmp_path, MODULE.format(port=service.port, options=""), "ann")
        assert not service.asked
    assert "orders read where /a = 1 topic, entry 1: read is /a = 1" in only
    assert "the service returns permissions only with the password of the user" in both
    assert not [line for line in both if line.startswith("orders")]


PYTHON: Final = """
class Rules:
    async def permissions(self, user):
        if user == "raise":
            raise LookupError("no such directory")
        return {"logon": True, "topic": [{"topic": "orders", "write": True}]}

def create_entitlement(name, options):
    return Rules()
"""


def test_a_module_in_python_is_asked(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(PYTHON)
    loaded = "<Modules><Module><Name>rules</Name><Library>./rules.py</Library></Module></Modules>"
    spoofed = (
        "<Authentication><Module>amps-default-authentication-module</Module>"
        "<Options><AllowSpoofing>true</AllowSpoofing></Options></Authentication>"
    )
    modules = f"{loaded}{spoofed}<Entitlement><Module>rules</Module></Entitlement>"
    said, _ = explained(tmp_path, modules, "ann")
    assert "orders write yes topic, entry 1: write is true" in said
    assert "orders read no topic, entry 1 has no read" in said
    said, errors = explained(tmp_path, modules, "raise")
    assert "log on no" in said
    assert "no such directory" in errors
    assert "Traceback" not in errors
