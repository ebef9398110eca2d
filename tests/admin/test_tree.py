"""A snapshot as a tree, and the forms in which it is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from lxml import etree

from server.admin.documents import html_form, json_form, rnc, xml_form
from server.admin.documents.values import text_of
from server.admin.tree import TREE_NODES, PathNotFoundError, SnapshotTree, TreeNode, TreeTarget
from server.statistics.host_resources import HOST_CPUS
from server.statistics.resources import RESOURCES
from server.statistics.schema import INTEGER, REAL, TEXT, StatisticValue, snapshot
from tests.admin.support import example_snapshot

TREE = SnapshotTree(example_snapshot())


def everything(_place: TreeNode) -> bool:
    return True


def as_json(*names: str, tree: SnapshotTree = TREE) -> Any:
    return json.loads(json_form.render(tree, tree.find(("amps", *names)), everything))


def as_xml(*names: str, tree: SnapshotTree = TREE) -> etree._Element:
    return etree.fromstring(xml_form.render(tree, tree.find(("amps", *names)), everything))


def paths_of(place: TreeNode) -> Iterator[tuple[str, ...]]:
    """The paths of a node in the example, of its entries and of their fields."""
    names = tuple(filter(None, place.path.split("/")))
    yield names
    entries = ["1", "2"] if place.has_entries else []
    fields = [] if place.resource is None else [field.name for field in place.resource.fields]
    for identity in entries:
        yield (*names, identity)
        yield from ((*names, identity, field) for field in fields)
    if not place.has_entries:
        yield from ((*names, field) for field in fields)


def all_paths(place: TreeNode) -> Iterator[tuple[str, ...]]:
    """The paths of a node, and of all below it."""
    yield from paths_of(place)
    for child in place.children.values():
        yield from all_paths(child)


@pytest.mark.parametrize("path", TREE_NODES)
def test_every_path_has_its_documents_with_the_whole_way_there(path: str) -> None:
    """In JSON a list stands for entries, in XML an element with an id."""
    for names in paths_of(TREE_NODES[path]):
        check_documents(names)


def check_documents(names: tuple[str, ...]) -> None:
    target = TREE.find(("amps", *names))
    assert target.names == ("amps", *names)
    document = as_json(*names)
    element = as_xml(*names)
    assert element.tag == "amps"
    place = target.node
    for name in ("amps", *filter(None, place.path.split("/"))):
        assert list(document) == [name]
        document = document[name]
        if name != "amps":
            (element,) = element
            assert element.tag == name
    if target.id is not None:
        (document,) = document
        (element,) = element
        assert document.pop("id") == element.get("id") == target.id
        assert place.resource is not None
        assert element.tag == place.resource.entry
    if target.field is not None:
        assert list(document) == [target.field.name]
        assert isinstance(document[target.field.name], str)
        assert [(one.tag, one.text) for one in element] == list(document.items())


def test_all_values_are_strings() -> None:
    def look(value: object) -> None:
        match value:
            case dict():
                for each in value.values():
                    look(each)
            case list():
                for each in value:
                    look(each)
            case _:
                assert isinstance(value, str)

    look(as_json())


@pytest.mark.parametrize(
    ("value", "of_type", "text"),
    [
        (12, INTEGER, "12"),
        (12.7, INTEGER, "12"),
        (float("inf"), INTEGER, "0"),
        (0.5, REAL, "0.500000000000"),
        (3, REAL, "3.000000000000"),
        (float("nan"), REAL, "0.000000000000"),
        ("", REAL, ""),
        ("a", TEXT, "a"),
        (None, TEXT, ""),
        (18446744073709551615, INTEGER, "18446744073709551615"),
    ],
)
def test_a_value_is_a_text(value: StatisticValue, of_type: Any, text: str) -> None:
    assert text_of(snapshot("one", "", of_type), value) == text


def test_the_sample_of_the_reference() -> None:
    """AMPS User Guide, JSON Document Output and XML Document Output."""
    values = {"all": (62.452316076294, 0.490463215259, 10.681198910082, 26.376021798365)}
    tree = SnapshotTree(type(TREE.snapshot)(TREE.snapshot.timestamp, {HOST_CPUS.path: values}))
    assert as_json("host", "cpus", tree=tree) == {
        "amps": {
            "host": {
                "cpus": [
                    {
                        "id": "all",
                        "idle_percent": "62.452316076294",
                        "iowait_percent": "0.490463215259",
                        "system_percent": "10.681198910082",
                        "user_percent": "26.376021798365",
                    }
                ]
            }
        }
    }
    assert xml_form.render(tree, tree.find(["amps", "host", "cpu", "all"]), everything) == (
        b"<amps>\n    <host>\n        <cpus>\n            <cpu id='all'>\n"
        b"                <idle_percent>62.452316076294</idle_percent>\n"
        b"                <iowait_percent>0.490463215259</iowait_percent>\n"
        b"                <system_percent>10.681198910082</system_percent>\n"
        b"                <user_percent>26.376021798365</user_percent>\n"
        b"            </cpu>\n        </cpus>\n    </host>\n</amps>\n"
    )


def test_what_is_not_there_yet_leaves_empty_groups() -> None:
    """Programs go through them without looking whether they are there."""
    tree = SnapshotTree(type(TREE.snapshot)(TREE.snapshot.timestamp, {}))
    amps = as_json(tree=tree)["amps"]
    for resource in RESOURCES:
        found = amps
        for name in resource.path.split("/"):
            found = found[name]
        assert isinstance(found, list if resource.entry else dict)
        assert not found or not resource.entry


NOWHERE = [
    (("amps", "hosts"), "/amps", ["host"]),
    (("nowhere",), "", []),
    ((), "", []),
    (("amps", "instance", "client"), "/amps/instance", ["clients"]),
    (("amps", "instance", "clients", "7"), "/amps/instance/clients", []),
    (("amps", "instance", "clients", "1", "byte_in"), "/amps/instance/clients/1", ["bytes_in"]),
    (("amps", "instance", "pid", "more"), "/amps/instance/pid", []),
    (
        ("amps", "instance", "clients", "1", "bytes_in", "more"),
        "/amps/instance/clients/1/bytes_in",
        [],
    ),
    (("amps", ""), "/amps", []),
    (("amps", "instance", "clients", ""), "/amps/instance/clients", []),
]


@pytest.mark.parametrize(("names", "path", "near"), NOWHERE)
def test_what_is_not_there_is_told_with_what_is(
    names: tuple[str, ...], path: str, near: list[str]
) -> None:
    with pytest.raises(PathNotFoundError) as nothing:
        TREE.find(names)
    assert nothing.value.path == path
    assert set(near) <= set(nothing.value.suggestions)


def test_other_spellings_lead_to_the_same_place() -> None:
    assert TREE.find(["amps", "host", "cpu", "1"]) == TREE.find(["amps", "host", "cpus", "1"])
    found = TREE.find(["amps", "instance", "message_type"])
    assert found == TREE.find(["amps", "instance", "message_types"])


STRANGE = "a&<b>'\"\x01\udc80/é\n%"
"""A name that is no text, as that of a file may be, with all that means something somewhere."""


def test_strange_names_break_nothing() -> None:
    fields = TREE_NODES["instance/clients"].resource
    assert fields is not None
    values = {STRANGE: (STRANGE,) * len(fields.fields)}
    tree = SnapshotTree(type(TREE.snapshot)(TREE.snapshot.timestamp, {"instance/clients": values}))
    target = tree.find(["amps", "instance", "clients", STRANGE])
    (client,) = as_json("instance", "clients", tree=tree)["amps"]["instance"]["clients"]
    assert client["id"] == client["client_name"] == STRANGE
    (element,) = as_xml("instance", "clients", tree=tree)[0][0]
    assert element.get("id") == element[0].text == "a&<b>'\"\ufffd\ufffd/é\n%"
    page = html_form.node_page(tree, target, "now", [], []).decode()
    assert "<b>" not in page
    assert html_form.leaf(STRANGE).decode().count("<b>") == 0
    assert target.path == "/amps/instance/clients/a%26%3Cb%3E%27%22%01%3F%2F%C3%A9%0A%25"


def test_the_page_of_a_value_has_no_text_but_the_value() -> None:
    page = html_form.leaf("a <b> & c").decode()
    assert re.sub("<[^>]*>", "", page) == "a &lt;b&gt; &amp; c"


@pytest.mark.parametrize(
    "names", [(), ("instance",), ("instance", "clients"), ("host", "cpus", "1")]
)
def test_a_page_leads_everywhere_below_it(names: tuple[str, ...]) -> None:
    target = TREE.find(("amps", *names))
    shown = [] if target.id is not None else list(target.node.children.values())
    page = html_form.node_page(TREE, target, "now", shown, [])
    root = etree.HTML(page)
    links = set(root.xpath("//main//a/@href"))
    below = {
        path
        for path in all_paths(TREE_NODES[""])
        if len(path) == len(names) + 1 and path[: len(names)] == names
    }
    assert {"/amps/" + "/".join(path) for path in below} <= links
    assert root.xpath("string(//title)")
    assert root.xpath("//html/@lang") == ["en"]
    assert root.xpath("//nav/@aria-label")
    assert not root.xpath("//script")


class Grammar:
    """The part of RELAX NG's compact syntax that the schema uses, turned into XML."""

    def __init__(self, text: str) -> None:
        self._tokens = re.findall(r"[{}=,?*]|[\w.]+", re.sub(r"#.*", "", text))
        self._lines = ['<grammar xmlns="http://relaxng.org/ns/structure/1.0">']
        while self._tokens:
            name = self._take()
            assert self._take() == "="
            tag = "start" if name == "start" else f'define name="{name}"'
            self._lines.append(f"<{tag}>{self._pattern()}</{tag.split()[0]}>")
        self.xml = "".join([*self._lines, "</grammar>"])

    def _take(self) -> str:
        return str(self._tokens.pop(0))

    def _pattern(self) -> str:
        word = self._take()
        if word in ("element", "attribute"):
            name = self._take()
            found = f'<{word} name="{name}">{self._group()}</{word}>'
        elif word == "text":
            found = "<text/>"
        else:
            found = f'<ref name="{word}"/>'
        if self._tokens and self._tokens[0] in ("?", "*"):
            tag = {"?": "optional", "*": "zeroOrMore"}[self._take()]
            found = f"<{tag}>{found}</{tag}>"
        return found

    def _group(self) -> str:
        assert self._take() == "{"
        found = self._pattern()
        while (sign := self._take()) == ",":
            found += self._pattern()
        assert sign == "}"
        return found


@pytest.fixture(scope="module")
def schema() -> etree.RelaxNG:
    grammar = Grammar(rnc.render().decode())
    return etree.RelaxNG(etree.fromstring(grammar.xml))


@pytest.mark.parametrize("path", TREE_NODES)
def test_documents_are_what_the_schema_says(path: str, schema: etree.RelaxNG) -> None:
    for names in paths_of(TREE_NODES[path]):
        schema.assertValid(as_xml(*names))


def test_the_schema_refuses_other_documents(schema: etree.RelaxNG) -> None:
    root = as_xml("instance", "clients", "1")
    root[0][0][0].tag = "host"
    assert not schema.validate(root)


def test_places_that_may_not_be_seen_are_left_out() -> None:
    def is_shown(place: TreeNode) -> bool:
        return place.path != "instance/clients"

    target = TreeTarget(TREE_NODES["instance"])
    assert "clients" not in json.loads(json_form.render(TREE, target, is_shown))["amps"]["instance"]
    assert b"<clients>" not in xml_form.render(TREE, target, is_shown)
    assert b"<clients>" in xml_form.render(TREE, target, everything)
