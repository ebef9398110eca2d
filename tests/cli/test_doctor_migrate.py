"""`amps-doctor --migrate`: the checklist of docs/migration.md, filled in for a configuration."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from config_schema import schema
from config_schema.standard_modules import LIBRARIES_OF_AMPS
from server.app.wiring.catalogue import ProgramCatalogue
from server.cli import amps_doctor
from server.cli.doctor.migration.checklist import _CLIENT_CHECKS
from server.cli.doctor.migration.features import FEATURES, features_of
from server.cli.doctor.migration.survey import _SECTIONS
from server.cli.spark.options import parse

ROOT = Path(__file__).parents[2]
COMPATIBILITY = (ROOT / "docs/compatibility.md").read_text()
HEADINGS = set(re.findall(r"^## (.*)$", COMPATIBILITY, re.MULTILINE))
SECRET = "hunter-two"

FULL = f"""
<AMPSConfig>
  <Name>full</Name>
  <Modules>
    <Module><Name>auth</Name><Library>libmine.so</Library></Module>
    <Module><Name>types</Name><Library>/opt/libtypes.so</Library></Module>
    <Module><Name>keys</Name><Library>libkeys.so</Library></Module>
    <Module><Name>links</Name><Library>liblinks.so</Library></Module>
    <Module><Name>idle</Name><Library>libidle.so</Library></Module>
    <Module>
      <Name>web</Name><Library>libamps_http_entitlement.so</Library>
      <Options><ResourceURI>http://localhost:1/{{{{USER_NAME}}}}</ResourceURI></Options>
    </Module>
  </Modules>
  <Authentication>
    <Module>auth</Module><Options><Password>{SECRET}</Password></Options>
  </Authentication>
  <Entitlement><Module>web</Module></Entitlement>
  <Authenticator><Module>links</Module></Authenticator>
  <MessageTypes><MessageType><Name>own</Name><Module>types</Module></MessageType></MessageTypes>
  <Transports>
    <Transport>
      <Name>session</Name><Type>tcp</Type><InetAddr>localhost:9010</InetAddr>
      <Protocol>fix-session</Protocol><MessageType>fix</MessageType>
    </Transport>
    <Transport>
      <Name>secure</Name><Type>tcps</Type><InetAddr>localhost:9011</InetAddr>
      <Protocol>amps</Protocol>
      <Certificate>none.pem</Certificate><PrivateKey>none.pem</PrivateKey>
    </Transport>
  </Transports>
  <SOW>
    <Topic>
      <Name>a b</Name><MessageType>json</MessageType><Key>/id</Key>
      <FileName>./sow/%n.sow</FileName><RecordSize>512</RecordSize>
    </Topic>
    <Topic>
      <Name>keyless</Name><MessageType>own</MessageType><Durability>transient</Durability>
    </Topic>
    <Topic>
      <Name>chained</Name><MessageType>fix</MessageType><Durability>transient</Durability>
      <KeyGenerator><Module>keys</Module></KeyGenerator>
    </Topic>
    <Queue><Name>q</Name><MessageType>json</MessageType></Queue>
    <View>
      <Name>v</Name><MessageType>json</MessageType><UnderlyingTopic>a b</UnderlyingTopic>
      <Projection><Field>/id</Field></Projection><Grouping><Field>/id</Field></Grouping>
    </View>
  </SOW>
  <TransactionLog>
    <JournalDirectory>./journal</JournalDirectory>
    <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <Actions><Action>
    <On><Module>amps-action-on-nonsense</Module></On>
    <Do><Module>amps-action-do-nothing</Module></Do>
  </Action></Actions>
</AMPSConfig>
"""
SMALL = """
<AMPSConfig>
  <Name>small</Name>
  <Transports><Transport>
    <Name>any</Name><Type>tcp</Type><InetAddr>localhost:9007</InetAddr><Protocol>amps</Protocol>
  </Transport></Transports>
  <SOW><Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>./sow/%n.sow</FileName>
  </Topic></SOW>
</AMPSConfig>
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a configuration is, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config.xml"


def migrate(
    capsys: pytest.CaptureFixture[str], config: Path, *words: str
) -> tuple[int, str, dict[str, Any]]:
    """The exit status, the text, and what programs get."""
    status = amps_doctor.main(["--migrate", str(config), *words])
    text = capsys.readouterr()
    assert amps_doctor.main(["--migrate", str(config), *words, "--json"]) == status
    data = capsys.readouterr()
    assert text.err == data.err == ""
    return status, text.out, json.loads(data.out)


def test_a_configuration_that_needs_much(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(FULL)
    for place in ("journal/full.0000000000.journal", "sow/a b.json.sow"):
        (config.parent / place).parent.mkdir()
        (config.parent / place).write_bytes(b"AMPS" * 5000)
    status, text, found = migrate(capsys, config)
    assert status == 3
    assert SECRET not in text
    assert f"It cannot be used yet: {len(found['errors'])} errors." in text
    states = {one["name"]: one["state"] for one in found["features"]}
    assert states["the protocol fix-session"] == "not there"
    assert states["queues"] == states["views"] == states["TLS"] == "differs"
    assert states["transports"] == "same"
    modules = {one["name"]: (one["state"], one["advice"]) for one in found["modules"]}
    assert modules["web"][0] == "differs"
    assert "Permissions from a web service" in modules["web"][1]
    for name, advice in {
        "auth": "write it anew in Python (docs/security.md#authentication)",
        "types": "write it anew in Python (docs/message_types.md#custom-types)",
        "keys": "write it anew in Python (docs/sow.md#keys-of-your-own)",
        "links": "there is no way to do this in Python: logging on to other instances",
        "idle": "nothing uses it: leave it out",
        "amps-action-on-nonsense": "there is no such module here",
    }.items():
        assert modules[name][0] == "not there"
        assert modules[name][1].endswith(advice)
    assert [one["element"] for one in found["ignored"]] == ["SOW/Topic/RecordSize"]
    assert {one["path"] for one in found["files"]} == {
        "journal/full.0000000000.journal",
        "sow/a b.json.sow",
    }
    assert all(f"[ ] {one['path']} {one['what']}" in text for one in found["files"])
    carried = " ".join(one["text"] for one in found["carry"])
    assert "Records of keyless (own) have keys that publishers give" in carried
    assert "Messages in queues stay behind" in carried
    (command,) = next(one["commands"] for one in found["carry"] if "a b" in one["text"])
    assert command == (
        "spark sow_and_subscribe -server OLD:9011 -secure true -copy NEW:9011"
        " -type json -topic 'a b' > /dev/null"
    )


def test_a_configuration_that_runs_as_it_is(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(SMALL)
    status, text, found = migrate(capsys, config)
    assert (status, found["verdict"]) == (0, "OK")
    assert "It runs as it is." in text
    assert "[x] can be used as it is" in text
    assert "[x] no files of AMPS in the places of this server's" in text
    titles = re.findall(r"^\d\. .*$", text, re.MULTILINE)
    page = (ROOT / "docs/migration.md").read_text()
    assert [title[0] for title in titles] == re.findall(r"^## (\d)\. ", page, re.MULTILINE)
    assert not [*config.parent.glob("sow*")]


def test_commands_of_the_checklist_can_be_typed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(SMALL)
    _, _, found = migrate(capsys, config)
    commands = [
        one for part in ("carry", "steps") for item in found[part] for one in item["commands"]
    ]
    typed = [shlex.split(one.removesuffix(" > /dev/null")) for one in commands]
    spark = [words for words in typed if words[0] == "spark"]
    assert {words[1] for words in spark} == {"sow", "sow_and_subscribe"}
    for _, command, *words in spark:
        settings = parse(command, words)
        assert (settings.topic, settings.type) == ("orders", "json")
    assert {words[0] for words in typed} == {"spark", "ampServer", "amps-doctor"}


def test_files_are_looked_for_where_paths_begin(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(SMALL)
    (config.parent / "work/sow").mkdir(parents=True)
    (config.parent / "work/sow/orders.json.sow").write_bytes(b"AMPS" * 5000)
    status, _, found = migrate(capsys, config, "--work-dir", str(config.parent / "work"))
    assert (status, len(found["files"])) == (1, 1)


@pytest.mark.parametrize("text", ["", "<AMPSConfig>", "<Other/>", "<AMPSConfig/>", None])
def test_a_configuration_that_is_none(
    config: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    if text is not None:
        config.write_text(text)
    status, shown, found = migrate(capsys, config)
    assert (status, found["verdict"]) == (3, "wrong")
    assert found["errors"]
    assert "files of AMPS have not been looked for" in shown


SAMPLES = [path for path in (ROOT / "sample_configs").rglob("*.xml") if "parts" not in path.parts]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.name))
def test_our_own_samples_need_nothing(
    config: Path, capsys: pytest.CaptureFixture[str], path: Path
) -> None:
    status = amps_doctor.main(["--migrate", str(path), "--json", "-DREGION=x", "-DPORT=9007"])
    found = json.loads(capsys.readouterr().out)
    assert status in (0, 1)
    assert not found["errors"]
    assert {one["state"] for one in found["features"]} <= {"same", "differs"}


def test_every_element_is_part_of_a_feature() -> None:
    paths = {path.partition("/")[2] for path in schema.elements()} - {""}
    sections = {path for path in paths if path in ("Transports", "SOW", "Replication")}
    lacking = {path for path in paths - sections if not [*features_of(path, "")]}
    assert lacking == set()
    for feature in FEATURES:
        assert {place.partition("=")[0] for place in feature.element_paths} <= paths


def test_every_section_that_is_named_is_there() -> None:
    named = {feature.section for feature in FEATURES if feature.section}
    named |= {section for _, _, section in _CLIENT_CHECKS} | set(_SECTIONS.values())
    assert named <= HEADINGS


def test_every_page_that_is_named_is_there(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(FULL)
    _, text, _ = migrate(capsys, config)
    pages = set(re.findall(r"docs/[\w/]+\.md(?:#[\w-]+)?", text))
    assert len(pages) > 4
    for page in pages:
        name, _, anchor = page.partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / name).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}
        assert not anchor or anchor in anchors


def test_what_the_guide_says_of_libraries_is_so() -> None:
    """Those of AMPS have counterparts; who takes one away has to say so there."""
    assert set(LIBRARIES_OF_AMPS) <= set(ProgramCatalogue().libraries)
