"""The structure of a configuration, and how its mistakes are explained."""

from pathlib import Path

import pytest

from config_schema import schema
from config_schema.document import ConfigNode, load
from config_schema.problems import Problems
from config_schema.validate import MAX_VIOLATIONS, validate
from config_schema.version import AMPS_VERSION

WORKING = """
<AMPSConfig>
    <Name>orders-1</Name>
    <Admin><InetAddr>localhost:8085</InetAddr><Interval>10s</Interval></Admin>
    <Transports>
        <Transport>
            <Name>tcp</Name>
            <Type>tcp</Type>
            <InetAddr>9007</InetAddr>
            <Protocol>amps</Protocol>
        </Transport>
    </Transports>
    <Logging>
        <Target><Protocol>stdout</Protocol><Level>info</Level></Target>
        <Target>
            <Protocol>file</Protocol>
            <FileName>log/%n.log</FileName>
            <Level>TRACE</Level>
            <RotationThreshold>2G</RotationThreshold>
        </Target>
    </Logging>
    <SOW>
        <Topic>
            <Name>orders</Name>
            <MessageType>json</MessageType>
            <Key>/customer</Key>
            <Key>/id</Key>
            <Expiration>1d</Expiration>
        </Topic>
        <View>
            <Name>totals</Name>
            <MessageType>json</MessageType>
            <UnderlyingTopic>orders</UnderlyingTopic>
            <Projection><Field>/customer</Field><Field>SUM(/qty) AS /qty</Field></Projection>
            <Grouping><Field>/customer</Field></Grouping>
        </View>
    </SOW>
    <TransactionLog>
        <JournalDirectory>journal</JournalDirectory>
        <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    </TransactionLog>
    <Actions>
        <Action>
            <On>
                <Module>amps-action-on-schedule</Module>
                <Options><Every>1h</Every></Options>
            </On>
            <Do>
                <Module>amps-action-do-remove-journal</Module>
                <Options><Age>1d</Age><Anything><Nested/></Anything></Options>
            </Do>
        </Action>
    </Actions>
</AMPSConfig>
"""


def check(path: Path, text: str) -> tuple[ConfigNode, list[str]]:
    path.write_text(text)
    problems = Problems()
    document = load(str(path), defines={}, environ={}, problems=problems)
    assert document is not None
    root = validate(document, problems)
    return root, [str(problem).replace(f"{path.parent}/", "") for problem in problems]


def instance(*elements: str) -> str:
    """A configuration with its name on line 2 and each of `elements` on a line of its own."""
    return "\n".join(["<AMPSConfig>", "<Name>test</Name>", *elements, "</AMPSConfig>"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "amps.xml"


def test_a_working_configuration_has_no_problems(file: Path) -> None:
    root, problems = check(file, WORKING)
    assert problems == []
    assert root.value("Name") == "orders-1"


def test_elements_may_stand_in_any_order(file: Path) -> None:
    _, problems = check(
        file,
        instance(
            "<SOW><View><Projection><Field>/a</Field></Projection><MessageType>json</MessageType>"
            "<UnderlyingTopic>t</UnderlyingTopic><Grouping><Field>/a</Field></Grouping>"
            "<Name>v</Name></View><Topic><Key>/a</Key><MessageType>json</MessageType>"
            "<Key>/b</Key><Name>t</Name></Topic></SOW>"
        ),
    )
    assert problems == []


TRANSPORT = "<Transports><Transport><Name>t</Name><Type>tcp</Type>{}</Transport></Transports>"
JOURNAL = "<TransactionLog><JournalDirectory>j</JournalDirectory>{}</TransactionLog>"
TOPIC = "<SOW><Topic><Name>t</Name><MessageType>json</MessageType>{}</Topic></SOW>"


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        # names
        ("<Nam/>", "AMPSConfig/Nam: unknown element; did you mean Name?"),
        ("<name/>", "AMPSConfig/name: unknown element; did you mean Name?"),
        ("<Zebra/>", "AMPSConfig/Zebra: unknown element"),
        ("<p:Admin xmlns:p='u'/>", "AMPSConfig/p:Admin: unknown element; did you mean Admin?"),
        (
            TRANSPORT.format("<InetAdr>9007</InetAdr>"),
            "Transport/InetAdr: unknown element; did you mean InetAddr?",
        ),
        (
            TRANSPORT.format("<inetaddr>9007</inetaddr>"),
            "Transport/inetaddr: unknown element; did you mean InetAddr?",
        ),
        ("<SOW><Key>/id</Key></SOW>", "SOW/Key: unknown element; Key belongs inside Topic"),
        (
            "<Transport/>",
            "AMPSConfig/Transport: unknown element; Transport belongs inside Transports",
        ),
        (
            TOPIC.format("<RotationThreshold/>"),
            "Topic/RotationThreshold: unknown element; RotationThreshold belongs inside Target",
        ),
        ("<Logging><Log/></Logging>", "Logging/Log: unknown element; expected Target"),
        # how often
        ("<Name>again</Name>", "AMPSConfig/Name: given twice: it is already at amps.xml:2"),
        (
            "<Logging><Target><Level>info</Level></Target></Logging>",
            "Target/Protocol: is missing but required: expected ",
        ),
        # values
        (
            "<Admin><InetAddr>1</InetAddr><Interval>10x</Interval></Admin>",
            "Admin/Interval: '10x' is not an interval: expected a number and a unit such as 10s,",
        ),
        (
            TRANSPORT.format("<InetAddr>localhost</InetAddr>"),
            "Transport/InetAddr: 'localhost' is not an address: expected a port from 0 to 65535",
        ),
        (
            "<RegexTopicSupport>maybe</RegexTopicSupport>",
            "AMPSConfig/RegexTopicSupport: 'maybe' is not a switch: expected true or false, enabl",
        ),
        (
            "<MiniDumpFileMask>0999</MiniDumpFileMask>",
            "AMPSConfig/MiniDumpFileMask: '0999' is not a file mask: expected permissions in oct",
        ),
        (
            JOURNAL.format("<JournalSize>ten</JournalSize>"),
            "TransactionLog/JournalSize: 'ten' is not a size: expected a number",
        ),
        (
            TOPIC.format("<Expiration>soon</Expiration>"),
            "Topic/Expiration: 'soon' is not accepted: expected a length of time such as 30s",
        ),
        (
            "<Logging><Target><Protocol>stout</Protocol></Target></Logging>",
            "Target/Protocol: 'stout' is not accepted: expected ",
        ),
        (TOPIC.format("<Key/>"), "Topic/Key: is empty: expected the identifier of a field"),
        # text, elements and attributes where there should be none
        ("<SOW>topics</SOW>", "AMPSConfig/SOW: unexpected text 'topics': expected elements only"),
        (
            "<Description><p/></Description>",
            "AMPSConfig/Description: expected text, found the element p",
        ),
        (
            "<Admin interval='1s'><InetAddr>1</InetAddr></Admin>",
            "AMPSConfig/Admin: unknown attribute 'interval'; write it as an element, <Interval>",
        ),
        ("<Group lang='en'>g</Group>", "AMPSConfig/Group: unknown attribute 'lang'"),
    ],
)
def test_every_kind_of_mistake(file: Path, element: str, problem: str) -> None:
    _, problems = check(file, instance(element))
    assert len(problems) == 1
    assert problems[0].startswith(f"amps.xml:3: error: {problem}")


def test_a_misspelled_choice_comes_with_the_right_one(file: Path) -> None:
    _, problems = check(
        file, instance("<Logging><Target><Protocol>stout</Protocol></Target></Logging>")
    )
    assert "stdout, stderr, file, gzip, syslog; did you mean stdout?" in problems[0]


def test_all_mistakes_are_reported_in_one_run(file: Path) -> None:
    _, problems = check(
        file,
        "<AMPSConfig x='1'>\n<Nmae>n</Nmae>\n<Group>a</Group>\n<Group>b</Group>\n<Zebra/>\n"
        "<Admin>\n<InetAddr>x</InetAddr>\n<Bad/>\n</Admin>\n</AMPSConfig>",
    )
    assert [problem.split("; ")[0].split(": expected")[0] for problem in problems] == [
        "amps.xml:1: error: AMPSConfig: unknown attribute 'x'",
        "amps.xml:1: error: AMPSConfig/Name: is missing but required",
        "amps.xml:2: error: AMPSConfig/Nmae: unknown element",
        "amps.xml:4: error: AMPSConfig/Group: given twice: it is already at amps.xml:3",
        "amps.xml:5: error: AMPSConfig/Zebra: unknown element",
        "amps.xml:7: error: Admin/InetAddr: 'x' is not an address",
        "amps.xml:8: error: Admin/Bad: unknown element",
    ]


def test_places_in_included_files(tmp_path: Path) -> None:
    (tmp_path / "sow.xml").write_text("<!-- topics -->\n<Topic>\n<Name>t</Name>\n<Nope/></Topic>")
    _, problems = check(
        tmp_path / "amps.xml", instance("<SOW><Include>sow.xml</Include></SOW>", "<Zebra/>")
    )
    assert [problem.split(": expected")[0] for problem in problems] == [
        "amps.xml:4: error: AMPSConfig/Zebra: unknown element",
        "sow.xml:2: error: Topic/MessageType: is missing but required",
        "sow.xml:4: error: Topic/Nope: unknown element",
    ]


def test_the_root_must_be_a_configuration(file: Path) -> None:
    _, problems = check(file, "<Configuration/>")
    assert problems == [
        "amps.xml:1: error: Configuration: the outermost element of a configuration is AMPSConfig"
    ]


def test_synonyms_become_canonical_names(file: Path) -> None:
    root, problems = check(
        file, instance("<SOW><Topic><Topic>t</Topic><MessageType>json</MessageType></Topic></SOW>")
    )
    assert problems == []
    sow = root.find("SOW")
    assert sow is not None
    assert [child.tag for child in sow.children[0].children] == ["Name", "MessageType"]
    assert sow.children[0].children[0].location.line == 3


@pytest.mark.parametrize("path", [doc.path for doc in schema.elements().values() if doc.synonyms])
def test_every_synonym_of_the_schema_is_renamed(path: str, file: Path) -> None:
    doc = schema.elements()[path]
    names = doc.parent.split("/")
    for synonym in doc.synonyms:
        root, _ = check(file, nested(doc.parent, f"<{synonym}/>"))
        for _ in names[1:]:
            root = root.children[0]
        assert [child.tag for child in root.children] == [doc.name]


def test_an_element_and_its_synonym_are_the_same_element(file: Path) -> None:
    _, problems = check(file, instance(TOPIC.format("<Topic>u</Topic>")))
    assert problems == [
        "amps.xml:3: error: Topic/Topic: given twice: it is already at amps.xml:3 as Name",
    ]


def nested(path: str, inside: str) -> str:
    """The elements of a schema path around `inside`, which begins on line 2."""
    names = path.split("/")
    opening = "".join(f"<{name}>" for name in names)
    return f"{opening}\n{inside}" + "".join(f"</{name}>" for name in reversed(names))


def test_elements_without_effect_are_noted(file: Path) -> None:
    doc = next(doc for doc in schema.elements().values() if doc.effect)
    _, problems = check(file, nested(doc.parent, f"<{doc.name}/>"))
    label = f"{doc.parent.rpartition('/')[2]}/{doc.name}"
    assert f"amps.xml:2: info: {label}: has no effect here: {doc.effect}" in problems


def test_where_the_schema_is_lenient_unknown_elements_are_warned_about(file: Path) -> None:
    doc = next(doc for doc in schema.elements().values() if doc.others == "tolerated")
    _, problems = check(file, nested(doc.path, "<NeverHeardOf/>"))
    about = [problem for problem in problems if "NeverHeardOf" in problem]
    assert len(about) == 1
    expected = f"amps.xml:2: warning: {doc.name}/NeverHeardOf: unknown element, ignored"
    assert about[0].startswith(expected)


@pytest.mark.parametrize(
    ("parent", "written", "hint"),
    [
        ("Replication/Destination", "SyncTyp", "did you mean SyncType?"),
        ("Replication/Destination", "Passthrough", "did you mean PassThrough?"),
        ("Replication/Destination", "VerifyClient", "VerifyClient belongs inside Transport"),
        ("Replication/Destination/Transport", "VerifyCleint", "did you mean VerifyClient?"),
        ("Replication/Destination/Transport", "SyncType", "SyncType belongs inside Destination"),
        ("Tuning", "TransactionLogs", "did you mean TransactionLog?"),
    ],
)
def test_an_element_that_was_meant_to_be_a_known_one_is_refused_everywhere(
    file: Path, parent: str, written: str, hint: str
) -> None:
    path = f"AMPSConfig/{parent}"
    _, problems = check(file, nested(path, f"<{written}>x</{written}>"))
    about = [problem for problem in problems if f"/{written}:" in problem]
    label = f"{parent.rpartition('/')[2]}/{written}"
    assert about == [f"amps.xml:2: error: {label}: unknown element; {hint}"]


def test_options_of_modules_are_left_to_the_module(file: Path) -> None:
    free = [doc.path for doc in schema.elements().values() if doc.others == "any"]
    assert any(path.endswith("Do/Options") for path in free)
    _, problems = check(
        file,
        instance(
            "<Actions><Action><On><Module>m</Module></On><Do><Module>m</Module>"
            "<Options><Whatever a='1'>x<Deeper/></Whatever></Options></Do></Action></Actions>"
        ),
    )
    assert problems == []


def test_config_validation_disabled_skips_the_schema(file: Path) -> None:
    off = "<ConfigValidation>disabled</ConfigValidation>"
    _, problems = check(file, instance(off, "<Zebra/>"))
    expected = "the configuration is used without checking its structure"
    assert problems == [f"amps.xml:3: warning: AMPSConfig/ConfigValidation: {expected}"]
    _, problems = check(file, instance(off.replace("disabled", "perhaps"), "<Zebra/>"))
    assert len(problems) == 2


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("5", True),
        ("5.3.5", True),
        ("5.3.5.0", True),
        ("4.99", True),
        ("5.3.6", False),
        ("6", False),
    ],
)
def test_minimum_versions(file: Path, version: str, accepted: bool) -> None:
    for name, severity in (
        ("RequiredMinimumVersion", "error"),
        ("SuggestedMinimumVersion", "warning"),
    ):
        _, problems = check(file, instance(f"<{name}>{version}</{name}>"))
        asks = f"asks for AMPS {version} or later; this server implements {AMPS_VERSION}"
        refused = [f"amps.xml:3: {severity}: AMPSConfig/{name}: {asks}"]
        assert problems == ([] if accepted else refused)


def test_the_number_of_violations_is_bounded(file: Path) -> None:
    _, problems = check(file, instance(*["<Zebra/>"] * 5_000))
    assert len(problems) == MAX_VIOLATIONS
