"""What a configuration amounts to: every element that counts is a setting, with its place."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from config_schema import schema
from config_schema.compile import compile_config
from config_schema.document import ConfigNode, load
from config_schema.problems import Location, Problems
from config_schema.settings import (
    SettingsEntry,
    UnknownElementError,
    at_line,
    compare,
    entries_of,
    find_elements,
)
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from tests.config_schema.test_compile_golden import EXPECTED, write_files

PROJECT: Final = Path(__file__).parents[2]
SAMPLES: Final = sorted((PROJECT / "sample_configs").rglob("*.xml"))
GOLDEN: Final = sorted((Path(__file__).parent / "golden").glob("*.txt"))
NOT_BY_ITSELF: Final = {
    "Authenticator",  # is that of every destination that has none
    "ConfigCycleDetectionThreshold",
    "ConfigIncludeCommentDefault",
    "RequiredMinimumVersion",
    "SuggestedMinimumVersion",
}
"""Elements that say how the file is read, or what holds elsewhere."""

WHOLE: Final = """<AMPSConfig>
  <Name>one</Name>
  <Group>group</Group>
  <Transports>
    <Transport>
      <Name>tcp</Name><Type>tcp</Type><InetAddr>9007</InetAddr><Protocol>amps</Protocol>
      <MessageMemoryLimit>1GB</MessageMemoryLimit>
    </Transport>
    <Transport><Name>in</Name><Type>amps-replication</Type><InetAddr>9008</InetAddr></Transport>
  </Transports>
  <Logging>
    <Target><Protocol>file</Protocol><Level>info</Level><FileName>./log/%n.log</FileName></Target>
    <Target><Protocol>stdout</Protocol><Level>error</Level></Target>
  </Logging>
  <TransactionLog>
    <JournalDirectory>./journals</JournalDirectory>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    <Topic><Name>later</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <SOW>
    <Topic>
      <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
      <FileName>./sow/%n.sow</FileName>
      <HashIndex><Key>/a</Key><Key>/b</Key></HashIndex><HashIndex><Key>/c</Key></HashIndex>
      <Expiration>1h</Expiration>
    </Topic>
    <View>
      <Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
      <Projection><Field>/id</Field><Field>SUM(/qty) AS /qty</Field></Projection>
      <Grouping><Field>/id</Field></Grouping>
    </View>
    <Queue><Name>jobs</Name><MessageType>json</MessageType>
      <UnderlyingTopic>later</UnderlyingTopic><LeasePeriod>60s</LeasePeriod></Queue>
  </SOW>
  <Replication>
    <Destination>
      <Name>two</Name><SyncType>sync</SyncType>
      <Topic><Name>orders</Name><MessageType>json</MessageType>
        <ExcludeValidation>sow,txlog</ExcludeValidation></Topic>
      <Transport><InetAddr>a:1</InetAddr><InetAddr>b:1</InetAddr></Transport>
    </Destination>
  </Replication>
  <Actions>
    <Action>
      <On><Module>amps-action-on-schedule</Module><Options><Every>1h</Every></Options></On>
      <Do><Module>amps-action-do-rotate-logs</Module></Do>
    </Action>
    <Action>
      <On><Module>amps-action-on-startup</Module></On>
      <Do><Module>amps-action-do-echo-message</Module><Options><Message>a</Message></Options></Do>
      <Do><Module>amps-action-do-echo-message</Module><Options><Message>b</Message></Options></Do>
    </Action>
  </Actions>
  <Admin><InetAddr>8085</InetAddr></Admin>
</AMPSConfig>
"""


def read(path: Path) -> tuple[SettingsEntry, ConfigNode] | None:
    problems = Problems()
    document = load(str(path), defines={}, environ=os.environ, problems=problems)
    if document is None:
        return None
    root = validate(document, problems)
    spec = compile_config(root, ProgramCatalogue(), problems)
    return None if spec is None else (entries_of(spec, root, ProgramCatalogue()), root)


def amounts(text: str, folder: Path, name: str = "config.xml") -> SettingsEntry:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    found = read(path)
    assert found is not None, "the configuration of the test is not good"
    return found[0]


def changes(old: str, new: str, folder: Path) -> list[str]:
    """What differs, a line each: kind, element, and both texts."""
    found = compare(amounts(old, folder, "old.xml"), amounts(new, folder, "new.xml"))
    return [
        " | ".join(
            (
                change.kind,
                change.path.removeprefix("AMPSConfig/"),
                change.key,
                change.old.text if change.old else "",
                change.new.text if change.new else "",
            )
        )
        for change in found
    ]


def places(entry: SettingsEntry) -> Iterator[Location]:
    for setting in entry.settings.values():
        yield from (item.location for item in setting.items if item.location)
    for inner in entry.entries:
        yield inner.location
        yield from places(inner)


def leaves(node: ConfigNode, path: str) -> Iterator[tuple[str, ConfigNode]]:
    if path.endswith("/HashIndex"):
        yield path, node  # its keys are one value
        return
    if node.text and schema.effect(path) is None:
        yield path, node
    for child in node.children:
        yield from leaves(child, f"{path}/{child.tag}")


def lost(path: str) -> list[str] | None:
    """The elements that are no settings; None if the configuration cannot be used."""
    found = read(Path(path))
    if found is None:
        return None
    entry, root = found
    known = set(places(entry))
    return [
        f"{node.location}: {place}"
        for place, node in leaves(root, root.tag)
        if node.location not in known and place.split("/")[1] not in NOT_BY_ITSELF
    ]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_element_of_a_sample_is_a_setting(path: Path) -> None:
    assert not lost(str(path))


def test_every_element_of_a_good_configuration_is_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not would be left out of comparisons in silence."""
    good = 0
    for golden in GOLDEN:
        folder = tmp_path / golden.stem
        folder.mkdir()
        monkeypatch.chdir(folder)
        write_files(golden.read_text("utf-8").partition(EXPECTED)[0], folder)
        missing = lost("config.xml")
        assert not missing, golden
        good += missing is not None
    assert good > 20


def test_every_setting_is_one_of_the_schema(tmp_path: Path) -> None:
    """A name that is spelled wrongly in the table of tags would never be found."""

    def paths(entry: SettingsEntry) -> Iterator[str]:
        yield entry.path
        yield from (setting.path for setting in entry.settings.values())
        for inner in entry.entries:
            yield from paths(inner)

    assert set(paths(amounts(WHOLE, tmp_path))) <= set(schema.elements())


SAME: Final = {
    "comments and blanks": ("<Group>", "<!-- ours -->\n\n<Group>"),
    "a default written out": ("<Admin>", "<Admin><Interval>10s</Interval>"),
    "a default of an option": (
        "<Module>amps-action-on-startup</Module>",
        "<Module>amps-action-on-startup</Module><Options/>",
    ),
    "another unit": ("<LeasePeriod>60s<", "<LeasePeriod>1m<"),
    "a size in another unit": (">1GB<", ">1024MB<"),
    "upper case": ("<SyncType>sync<", "<SyncType>Sync<"),
    "a path": ("./journals", "journals/"),
    "indexes in another order": (
        "<HashIndex><Key>/a</Key><Key>/b</Key></HashIndex><HashIndex><Key>/c</Key></HashIndex>",
        "<HashIndex><Key>/c</Key></HashIndex><HashIndex><Key>/a</Key><Key>/b</Key></HashIndex>",
    ),
    "words in another order": ("sow,txlog", "txlog, sow"),
    "a name that stands for it anyway": (
        "<UnderlyingTopic>later</UnderlyingTopic><Lease",
        (
            "<UnderlyingTopic>later</UnderlyingTopic>"
            "<DefaultPublishTarget>later</DefaultPublishTarget><Lease"
        ),
    ),
    "what has no effect here": (
        "<JournalDirectory>",
        "<O_DIRECT>disabled</O_DIRECT><JournalDirectory>",
    ),
}


@pytest.mark.parametrize("what", SAME)
def test_what_means_the_same_is_no_change(what: str, tmp_path: Path) -> None:
    before, after = SAME[what]
    assert before in WHOLE
    assert changes(WHOLE, WHOLE.replace(before, after), tmp_path) == []


def test_entries_that_are_moved_are_no_change(tmp_path: Path) -> None:
    """Sections, transports, topics of the log, actions: none is known by where it stands."""

    def turned(node: str, text: str) -> str:
        parts = re.findall(rf"(?s)    <{node}>.*?</{node}>\n", text)
        assert len(parts) > 1
        whole = "".join(parts)
        assert whole in text
        return text.replace(whole, "".join(reversed(parts)))

    moved = WHOLE
    for node in ("Transport", "Target", "Action"):
        head, tail = moved.split("  <Replication>")
        if node == "Action":
            moved = "  <Replication>".join([head, turned(node, tail)])
        else:
            moved = "  <Replication>".join([turned(node, head), tail])
    admin = "  <Admin><InetAddr>8085</InetAddr></Admin>\n"
    moved = moved.replace(admin, "").replace("  <Name>one</Name>\n", f"{admin}  <Name>one</Name>\n")
    assert changes(WHOLE, moved, tmp_path) == []


def test_parts_and_variables_are_resolved_first(tmp_path: Path) -> None:
    (tmp_path / "admin.xml").write_text("<Admin><InetAddr>${ADMIN_PORT}</InetAddr></Admin>")
    included = WHOLE.replace(
        "<Admin><InetAddr>8085</InetAddr></Admin>", "<Include>admin.xml</Include>"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADMIN_PORT", "8085")
        assert changes(WHOLE, included, tmp_path) == []
        patch.setenv("ADMIN_PORT", "8086")
        expected = ["changed | Admin/InetAddr | InetAddr | 8085 | 8086"]
        assert changes(WHOLE, included, tmp_path) == expected


CHANGED: Final = {
    "who the instance logs on as everywhere": (
        "<Admin>",
        "<Authenticator><Module>amps-default-authenticator-module</Module></Authenticator><Admin>",
        [
            (
                "changed | Replication/Destination/Transport/Authenticator/Module"
                " | Authenticator/Module | not set | amps-default-authenticator-module"
            )
        ],
    ),
    "a value": (
        ">9007<",
        ">9017<",
        ["changed | Transports/Transport/InetAddr | InetAddr | 9007 | 9017"],
    ),
    "a default that no longer holds": (
        "<Admin>",
        "<Admin><Interval>5s</Interval>",
        ["changed | Admin/Interval | Interval | 10s | 5s"],
    ),
    "a derived default": (
        "  <Group>group</Group>\n",
        "",
        ["changed | Group | Group | group | one"],
    ),
    "a name": (
        "<Name>tcp</Name>",
        "<Name>plain</Name>",
        [
            "added | Transports/Transport |  |  | plain",
            "removed | Transports/Transport |  | tcp | ",
        ],
    ),
    "a topic of another type": (
        "<Topic><Name>later</Name><MessageType>json<",
        (
            "<Topic><Name>more</Name><MessageType>xml</MessageType></Topic>"
            "<Topic><Name>later</Name><MessageType>json<"
        ),
        ["added | TransactionLog/Topic |  |  | more (xml)"],
    ),
    "the schedule of an action": (
        "<Every>1h</Every>",
        "<Every>60s</Every>",
        ["changed | Actions/Action/On/Options/Every | Options/Every | 1h | 60s"],
    ),
    "a step more": (
        "<Do><Module>amps-action-do-rotate-logs</Module></Do>",
        (
            "<Do><Module>amps-action-do-rotate-logs</Module></Do>"
            "<Do><Module>amps-action-do-minidump</Module></Do>"
        ),
        ["added | Actions/Action/Do |  |  | amps-action-do-minidump"],
    ),
    "steps in another order": (
        (
            "<Message>a</Message></Options></Do>\n      <Do>"
            "<Module>amps-action-do-echo-message</Module><Options><Message>b<"
        ),
        (
            "<Message>b</Message></Options></Do>\n      <Do>"
            "<Module>amps-action-do-echo-message</Module><Options><Message>a<"
        ),
        [
            (
                "reordered | Actions/Action/Do |  | amps-action-do-echo-message: a, "
                "amps-action-do-echo-message: b | amps-action-do-echo-message: b, "
                "amps-action-do-echo-message: a"
            ),
        ],
    ),
    "addresses in another order": (
        "<InetAddr>a:1</InetAddr><InetAddr>b:1</InetAddr>",
        "<InetAddr>b:1</InetAddr><InetAddr>a:1</InetAddr>",
        ["changed | Replication/Destination/Transport/InetAddr | InetAddr | a:1, b:1 | b:1, a:1"],
    ),
    "the file of a log": (
        "./log/%n.log",
        "./logs/%n.log",
        ["changed | Logging/Target/FileName | FileName | ./log/%n.log | ./logs/%n.log"],
    ),
    "what a topic is": (
        "<Queue><Name>jobs</Name><MessageType>json</MessageType>",
        "<LocalQueue><Name>jobs</Name><MessageType>json</MessageType>",
        ["changed | SOW/LocalQueue |  | Queue | LocalQueue"],
    ),
    "when records expire": (
        "<Expiration>1h</Expiration>",
        "<Expiration>enabled</Expiration>",
        ["changed | SOW/Topic/Expiration | Expiration | 1h | enabled"],
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_differs_is_a_change(what: str, tmp_path: Path) -> None:
    before, after, expected = CHANGED[what]
    assert before in WHOLE
    new = WHOLE.replace(before, after)
    if "<LocalQueue>" in new:
        new = new.replace("</LeasePeriod></Queue>", "</LeasePeriod></LocalQueue>")
    assert changes(WHOLE, new, tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("SlabSize", ["SOW/Topic/SlabSize"]),
        ("slabsize", ["SOW/Topic/SlabSize"]),
        ("/AMPSConfig/SOW/Topic/Durability", ["SOW/Topic/Durability"]),
        ("AMPSConfig/SOW/Topic/Durability", ["SOW/Topic/Durability"]),
        ("/SOW/Topic/Durability", ["SOW/Topic/Durability"]),
        ("History/Window", ["SOW/Topic/History/Window"]),
        ("TopicDefinition", ["SOW/Topic"]),
        ("Interval", ["Admin/Interval", "SOW/ConflatedTopic/Interval"]),
    ],
)
def test_elements_are_found_by_name(name: str, paths: list[str]) -> None:
    found = [doc.path.removeprefix("AMPSConfig/") for doc in find_elements(name)]
    assert [path for path in found if "/Options/" not in path] == paths


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("SlabSise", "did you mean SlabSize?"),
        ("Transport/SlabSize", "did you mean AMPSConfig/SOW/Topic/SlabSize?"),
        ("/AMPSConfig/Topic/Key", "did you mean AMPSConfig/SOW/Topic/Key"),
        ("qqqqqq", "has an index"),
    ],
)
def test_an_unknown_name_gets_suggestions(name: str, suggestion: str) -> None:
    with pytest.raises(UnknownElementError, match=re.escape(suggestion)):
        find_elements(name)


def test_a_line_stands_for_the_element_there(tmp_path: Path) -> None:
    (tmp_path / "part.xml").write_text("<Admin>\n<InetAddr>8085</InetAddr>\n</Admin>")
    text = "<AMPSConfig>\n<Name>x</Name>\n<Include>part.xml</Include>\n</AMPSConfig>"
    path = tmp_path / "config.xml"
    path.write_text(text)
    document = load(str(path), defines={}, environ={}, problems=Problems())
    assert document is not None
    for file, line, expected in (
        ("", 2, "AMPSConfig/Name"),
        ("part.xml", 2, "AMPSConfig/Admin/InetAddr"),
        (str(tmp_path / "part.xml"), 3, "AMPSConfig/Admin/InetAddr"),
    ):
        assert at_line(document.root, document.files, file, line)[0] == expected
    with pytest.raises(UnknownElementError, match="is not a file"):
        at_line(document.root, document.files, "other.xml", 1)
    with pytest.raises(UnknownElementError, match="no element at or before line 0"):
        at_line(document.root, document.files, "", 0)
