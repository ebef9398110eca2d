"""The message type xml: elements, attributes, arrays, hostile documents, and rebuilding."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from server.message_types.base import BodyError, Value
from server.message_types.paths import Path, parse_path
from server.message_types.registry import create
from server.message_types.select_list import parse_selection
from tests.message_types.bodies import damaged, survives

XML = create("xml", "xml", {})

ORDER = (
    b'<Order update="full" n=""><ClientID>12345</ClientID><Symbol>I&amp;M</Symbol><Empty/>'
    b'<Leg px="1"><q>5</q></Leg><Leg px="2"><q/></Leg><Leg px="3"><q>7</q><note>x</note></Leg>'
    b"<Mixed> a <b>c</b> d </Mixed><Raw><![CDATA[<z>]]></Raw><Space> x </Space></Order>"
)
NAMESPACES = b'<o:a xmlns:o="urn:o" xmlns="urn:d" o:n="1" n="2"><o:b>1</o:b><b>2</b></o:a>'


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/Order/Symbol", "I&M"),
        ("/Order/@update", "full"),
        ("/Order/@n", None),
        ("/Order/@missing", None),
        ("/Order/Empty", None),
        ("/Order", None),
        ("/Other/Symbol", None),
        ("/Order/Symbol/x", None),
        ("/Order/Leg/@px", ["1", "2", "3"]),
        ("/Order/Leg/@px[2]", "3"),
        ("/Order/Leg/q", ["5", None, "7"]),
        ("/Order/Leg/q[2]", "7"),
        ("/Order/Leg/q[3]", None),
        ("/Order/Leg[2]/q", "7"),
        ("/Order/Leg/note", "x"),
        ("/Order/Symbol[0]", "I&M"),
        ("/Order/Mixed", "a  d"),
        ("/Order/Mixed/b", "c"),
        ("/Order/Raw", "<z>"),
        ("/Order/Space", " x "),
        ("[/Order/not a name]", None),
        ("/Order/*", None),
        ("/Order/{x}y", None),
        ("/Order/@update/deeper", None),
    ],
)
def test_value_of_path(path: str, value: Value) -> None:
    assert XML.extractor([parse_path(path), ("Order", "ClientID")])(ORDER) == (value, "12345")


@pytest.mark.parametrize(
    ("legs", "value"),
    [
        ("<Leg/><Leg/>", None),
        ('<Leg/><Leg px="1"/>', "1"),
        ('<Leg px=""/><Leg/>', None),
        ('<Leg px=""/><Leg px=""/><Leg/>', [None, None]),
        ('<Leg px="1"/><Leg/><Leg px="3"/>', ["1", "3"]),
    ],
)
def test_an_attribute_counts_where_it_is(legs: str, value: Value) -> None:
    """An element that lacks it adds nothing to the array; an empty one is a NULL there."""
    body = f"<Order>{legs}</Order>".encode()
    assert XML.extractor([("Order", "Leg", "@px")])(body) == (value,)
    last = value[-1] if isinstance(value, list) else value
    length = len(value) if isinstance(value, list) else 1
    assert XML.extractor([("Order", "Leg", "@px", length - 1)])(body) == (last,)


def test_names_have_their_prefix() -> None:
    read = XML.extractor([parse_path(p) for p in ("/o:a/o:b", "/o:a/b", "/o:a/@o:n", "/o:a/@n")])
    assert read(NAMESPACES) == ("1", "2", "1", "2")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"<a><b>1</b></a>", "1"),
        (b'<?xml version="1.0" encoding="iso-8859-1"?>\n<a><b>\xe9</b></a>', "é"),
        (b"<!-- c --><a><?pi?><b>1<!-- c --></b></a>", "1"),
        (b"<x/><a><b>1</b></a>", "1"),
        (b"<a><b>1</b></a><a><b>2</b></a>", ["1", "2"]),
        (b"<a><b>1</b><c>", "1"),
        (b"<a><b>1</b></a> garbage <", "1"),
        (b"", None),
        (b"plain", None),
        (b"<a><b>", None),
        (b"\xff\xfe", None),
        (b'<?xml version="1.0"?>', None),
        (b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e "v">]><a><b>&e;</b></a>', None),
    ],
)
def test_documents(body: bytes, value: Value) -> None:
    assert XML.extractor([("a", "b")])(body) == (value,)


def test_entities_and_files_are_never_read(tmp_path: object) -> None:
    doctype = b'<!DOCTYPE a [<!ENTITY f SYSTEM "file:///etc/hostname">]>'
    for body in (
        doctype + b"<a><b>&f;</b></a>",
        b'<?xml version="1.0"?>' + doctype + b"<a>&f;</a>",
    ):
        (value,) = XML.extractor([("a", "b")])(body)
        assert value is None
        with pytest.raises(BodyError):
            XML.select(body, parse_selection("+/"))


def test_exploding_entities_are_refused() -> None:
    lines = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    body = (
        f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e0 "ha">{lines}]><a b="&e9;"><b>&e9;</b></a>'
    )
    assert XML.extractor([("a", "b"), ("a", "@b")])(body.encode()) == (None, None)


def test_depth() -> None:
    def nested(depth: int) -> bytes:
        return b"<a>" * depth + b"x" + b"</a>" * depth

    assert XML.extractor([("a",) * 64])(nested(64)) == ("x",)
    assert XML.merge(nested(64), nested(64)) == nested(64)
    for depth in (65, 100_000):
        assert XML.extractor([("a",) * 64, ("a",) * 65])(nested(depth)) == (None, None)
        with pytest.raises(BodyError, match="XML"):
            XML.merge(nested(depth), nested(depth))


@pytest.mark.parametrize(
    ("stored", "delta", "merged"),
    [
        ("<o><a>1</a><b>2</b></o>", "<o><b>3</b></o>", "<o><a>1</a><b>3</b></o>"),
        ("<o><a>1.00</a></o>", "<o><c x='1'>2</c></o>", '<o><a>1.00</a><c x="1">2</c></o>'),
        ('<o k="1"/>', '<o k="2" l="3"/>', '<o k="2" l="3"/>'),
        ('<o k="1"/>', '<o k=""/>', '<o k="1"/>'),
        ("<o><a>1</a></o>", "<o><a/><b/></o>", "<o><a>1</a></o>"),
        (
            "<o><q><x>1</x><y>2</y></q></o>",
            "<o><q><y>3</y></q></o>",
            "<o><q><x>1</x><y>3</y></q></o>",
        ),
        ("<o><l>1</l><m/><l>2</l></o>", "<o><l>3</l></o>", "<o><l>3</l><m/></o>"),
        ("<o><l>1</l></o>", "<o><l>3</l><l>4</l></o>", "<o><l>3</l><l>4</l></o>"),
        ("<id>1</id>", "<px>2</px>", "<id>1</id><px>2</px>"),
    ],
)
def test_merge(stored: str, delta: str, merged: str) -> None:
    assert XML.merge(stored.encode(), delta.encode()) == merged.encode()


def test_merge_replaces_long_lists() -> None:
    stored = b"<r><id>1</id>" + b"<a>1</a>" * 100_000 + b"<z/></r>"
    delta = b"<r>" + b"<a>2</a>" * 100_000 + b"<b>3</b><b>4</b></r>"
    expected = b"<r><id>1</id>" + b"<a>2</a>" * 100_000 + b"<z/><b>3</b><b>4</b></r>"
    assert XML.merge(stored, delta) == expected


@pytest.mark.parametrize(
    ("previous", "current", "difference"),
    [
        ("<o><id>1</id><a>1</a></o>", "<o><id>1</id><a>1</a></o>", None),
        ("<o><id>1</id><a>1</a></o>", "<o><id>1</id><a>2</a></o>", "<o><id>1</id><a>2</a></o>"),
        ("<o><id>1</id></o>", "<o><id>2</id></o>", None),
        ("<o><id>1</id><l>1</l></o>", "<o><l>1</l><l>2</l></o>", "<o><l>1</l><l>2</l></o>"),
        ('<o k="1"><q x="1"/></o>', '<o k="2"><q x="1"/></o>', '<o k="2"/>'),
        ('<o><q x="1"><r>1</r></q></o>', '<o><q x="2"><r>1</r></q></o>', '<o><q x="2"/></o>'),
        ("<o><a>1</a></o>", "<o/>", None),
    ],
)
def test_differ(previous: str, current: str, difference: str | None) -> None:
    found = XML.differ(previous.encode(), current.encode(), [("o", "id")])
    assert found == (None if difference is None else difference.encode())


@pytest.mark.parametrize(
    ("selection", "selected"),
    [
        ("-/,+/Order/Symbol", "<Order><Symbol>I&amp;M</Symbol></Order>"),
        ("-/,+/Order/@update", '<Order update="full"/>'),
        (
            "-/,+/Order/Leg/q",
            "<Order><Leg><q>5</q></Leg><Leg><q/></Leg><Leg><q>7</q></Leg></Order>",
        ),
        ("-/,+/Order/Mixed/b", "<Order><Mixed><b>c</b></Mixed></Order>"),
        ("-/,+/Order/Nothing", ""),
    ],
)
def test_select(selection: str, selected: str) -> None:
    assert XML.select(ORDER, parse_selection(selection)) == selected.encode()


def test_select_without_what_is_excluded() -> None:
    selected = XML.select(ORDER, parse_selection("-/Order/Leg/@px,-/Order/Mixed,-/Order/@n"))
    assert b"Mixed" not in selected
    assert selected.count(b"<Leg>") == 3
    assert selected.startswith(b'<Order update="full"><ClientID>12345</ClientID>')


def test_build_and_update() -> None:
    fields: list[tuple[Path, Value]] = [
        (("o", "@id"), 7),
        (("o", "px"), 16000.0),
        (("o", "live"), True),
        (("o", "l"), ["a<", None]),
        (("o", "q", "x"), "\x00\udcff"),
        (("top",), None),
    ]
    built = (
        '<o id="7"><px>16000</px><live>1</live><l>a&lt;</l><l/><q><x>\ufffd\ufffd</x></q></o><top/>'
    )
    assert XML.build(fields) == built.encode()
    body = b'<o id="1" k="2"> <px c="3">1<z/></px> <l/><l/><l/><keep>1.00</keep></o>'
    assert XML.update(body, [*fields[:2], (("o", "@k"), None), (("o", "l"), "x")]) == (
        b'<o id="7"> <px c="3">16000</px> <l>x</l><keep>1.00</keep></o>'
    )


@pytest.mark.parametrize("name", ["55", "two words", "", "a<", "p:x", "@"])
def test_names_that_xml_does_not_have(name: str) -> None:
    with pytest.raises(BodyError, match="XML"):
        XML.build([(("o", name), 1)])


names = st.sampled_from(["a", "b", "c"])
contents = st.text("xyz <&1.", max_size=4)


@st.composite
def elements(draw: st.DrawFn, depth: int = 0) -> etree._Element:
    element = etree.Element(draw(names))
    for name in draw(st.sets(names, max_size=2)):
        element.set(name, draw(contents))
    element.text = draw(contents)
    if depth < 3:
        element.extend(draw(st.lists(elements(depth + 1), max_size=3)))
    return element


bodies = elements().map(etree.tostring)
paths = st.lists(names, min_size=1, max_size=4)


@given(elements(), paths, st.none() | names)
def test_agrees_with_xpath(
    element: etree._Element, steps: list[str], attribute: str | None
) -> None:
    xpath = "/" + "/".join(steps)
    if attribute is not None:
        found = [str(value) or None for value in _evaluate(element, f"{xpath}/@{attribute}")]
        path: Path = (*steps, f"@{attribute}")
    else:
        texts = [etree.XPath("text()")(node) for node in _evaluate(element, xpath)]
        nodes = _evaluate(element, xpath)
        found = [
            ("".join(map(str, text)).strip() if len(node) else "".join(map(str, text))) or None
            for node, text in zip(nodes, texts, strict=True)
        ]
        path = tuple(steps)
    value = list(found) if len(found) > 1 else found[0] if found else None
    assert XML.extractor([path])(etree.tostring(element)) == (value,)


def _evaluate(element: etree._Element, xpath: str) -> list[etree._Element]:
    found = etree.ElementTree(element).xpath(xpath)
    assert isinstance(found, list)
    return found


@given(bodies, bodies)
def test_difference_merges_back(previous: bytes, delta: bytes) -> None:
    current = XML.merge(previous, delta)
    difference = XML.differ(previous, current, [])
    rebuilt = XML.merge(previous, difference) if difference else previous
    steps = [path for length in (1, 2, 3) for path in product("abc", repeat=length)]
    read = XML.extractor([*steps, *((*path, f"@{name}") for path in steps for name in "abc")])
    assert read(rebuilt) == read(current)


@given(damaged(bodies), bodies)
def test_no_body_breaks_anything(body: bytes, other: bytes) -> None:
    survives(XML, body, other)
