"""The schema documents the language: names, words and values of every element can be asked for."""

import re
from importlib.resources import files
from xml.etree.ElementTree import Element, fromstring

import pytest
from lxml import etree
from xmlschema import XMLSchema11
from xmlschema.validators import XsdElement

from config_schema.schema import (
    ROOT,
    ElementDoc,
    children,
    effect,
    elements,
    load_schema,
    sections,
    synonyms,
)

SOURCE = files("config_schema").joinpath("amps_config.xsd").read_text(encoding="utf-8")
TREE = etree.fromstring(SOURCE.encode())
XS = "{http://www.w3.org/2001/XMLSchema}"
AMPS = "{urn:amperage:config}"
VOCABULARY = {"default", "synonym", "effect", "later", "modules", "example", "since"}


def doc(path: str) -> ElementDoc:
    return elements()[f"{ROOT}/{path}"]


def test_the_schema_is_built_once() -> None:
    assert load_schema() is load_schema()


def test_it_is_a_schema() -> None:
    """At the start of a server, it is not checked whether it is one."""
    assert XMLSchema11(SOURCE, validation="strict").validity == "valid"


def test_parents_come_before_their_children() -> None:
    seen = {""}
    for element in elements().values():
        assert element.parent in seen
        seen.add(element.path)


def test_every_element_is_documented() -> None:
    for path, element in elements().items():
        assert re.search(r"[a-z].*[.:]$", element.documentation), f"{path}: expected a sentence"
        assert bool(element.type_name) == bool(element.expected), path
        assert element.expected or children(path) or element.others == "any", path


def test_a_synonym_is_not_the_name_of_a_sibling_or_given_twice() -> None:
    for path in elements():
        declared = [name for child in children(path).values() for name in child.synonyms]
        assert len(declared) == len(set(declared)) == len(synonyms(path))
        assert not set(declared) & set(children(path))


def test_annotations_keep_to_their_vocabulary() -> None:
    for appinfo in TREE.iter(f"{XS}appinfo"):
        assert {note.tag for note in appinfo} <= {f"{AMPS}{name}" for name in VOCABULARY}
    for note in TREE.iter(f"{AMPS}effect"):
        assert (note.text or "").split()[0] == "none:"


def test_every_named_type_and_group_is_used() -> None:
    declared = {
        node.attrib["name"]
        for kind in ("simpleType", "complexType", "group")
        for node in TREE.findall(f"{XS}{kind}")
    }
    used = {
        name
        for node in TREE.iter()
        for attribute in ("type", "ref", "base", "memberTypes")
        for name in (node.get(attribute) or "").split()
    }
    assert declared <= used


def test_examples_are_accepted_where_they_are_given() -> None:
    for path, element in elements().items():
        declaration = load_schema().find(path)
        assert isinstance(declaration, XsdElement)
        for example in element.examples:
            problems = [error.reason for error in declaration.iter_errors(sample(path, example))]
            assert problems == [], f"{path}: {example}"


def sample(path: str, example: str) -> Element:
    if example.startswith("<"):
        return fromstring(example)
    element = Element(path.rpartition("/")[2])
    element.text = example
    return element


def test_an_element_tells_all_that_is_written_about_it() -> None:
    element = doc("SOW/Topic/Durability")
    assert (element.name, element.parent) == ("Durability", f"{ROOT}/SOW/Topic")
    assert element.values == ("persistent", "transient")
    assert element.expected == "a durability: persistent, transient"
    assert element.default == "persistent"
    assert element.synonyms == ("Duration",)
    assert (element.required, element.repeatable, element.others) == (False, False, "refused")
    assert doc("SOW/GroupLocalQueue/GroupLocalQueueDomain").since == "5.3.4"
    assert doc("Actions/Action/On/Options/Every").modules == ("on-schedule",)
    assert doc("SOW/Topic/Key").repeatable
    assert doc("Name").required


@pytest.mark.parametrize(
    ("path", "type_name", "values"),
    [
        ("Logging/Target/Levels", "logLevels", "developer trace debug stats info warning error"),
        ("Logging/Target/Facility", "syslogFacility", "LOG_USER LOG_LOCAL0 LOG_LOCAL1"),
        ("SOW/Topic/Expiration", "expiration", "enabled disabled"),
        ("SOW/View/UnderlyingTopic", "text", ""),
        ("SOW/Topic/SlabSize", "size", ""),
        ("SOW", "", ""),
    ],
)
def test_types_and_choices(path: str, type_name: str, values: str) -> None:
    wanted = tuple(values.split())
    assert doc(path).type_name == type_name
    assert doc(path).values[: len(wanted)] == wanted
    assert bool(doc(path).values) == bool(wanted)


def test_where_other_elements_may_stand() -> None:
    assert doc("Modules/Module/Options").others == "any"
    assert doc("Actions/Action/Do/Options").others == "any"
    assert doc("Tuning").others == "tolerated"
    assert doc("Replication/Destination/Transport").others == "tolerated"


def test_synonyms_belong_to_a_place() -> None:
    assert synonyms(ROOT) == {"TopicMetaData": "SOW", "SOWStatisticsInterval": "SOWStatsInterval"}
    assert synonyms(f"{ROOT}/SOW") == {
        "TopicDefinition": "Topic",
        "ReplicaDefinition": "ConflatedTopic",
        "TopicReplica": "ConflatedTopic",
        "ViewDefinition": "View",
        "QueueDefinition": "Queue",
    }
    assert synonyms(f"{ROOT}/SOW/Queue") == {"Topic": "Name"}
    assert synonyms(f"{ROOT}/TransactionLog") == {"MinJournalSize": "JournalSize"}
    assert synonyms(f"{ROOT}/Nowhere") == {}


def test_an_element_without_effect_says_why() -> None:
    assert effect(f"{ROOT}/SOW/Topic/RecordSize") == "replaced by SlabSize in AMPS 5.0"
    assert effect(f"{ROOT}/SOW/Topic/SlabSize") is None
    assert effect(f"{ROOT}/SOW/Topic/Key") is None
    assert effect(f"{ROOT}/Nowhere") is None


def test_unknown_places_have_no_children() -> None:
    assert children(f"{ROOT}/Nowhere") == {}


def test_the_prose_covers_what_is_not_an_element() -> None:
    texts = {section.title: section.text for section in sections()}
    assert "`Include`" in texts["Including files"]
    assert "`AMPS_CONFIG_DIRECTORY`" in texts["Variables"]
    assert "`ms`" in texts["Units"]
