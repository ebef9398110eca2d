"""Reading a configuration file: text, places, and what is wrong with a file."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from config_schema.document import (
    MAX_ATTRIBUTES,
    MAX_DEPTH,
    MAX_ELEMENTS,
    ConfigDocument,
    ConfigNode,
    load,
)
from config_schema.problems import Location, Problems, Severity
from config_schema.xml_file import MAX_FILE_BYTES


def read(
    path: Path, defines: Mapping[str, str] | None = None
) -> tuple[ConfigDocument | None, list[str]]:
    """Load `path`; the problems come with its directory left out."""
    problems = Problems()
    document = load(str(path), defines=defines or {}, environ={}, problems=problems)
    return document, [str(problem).replace(f"{path.parent}/", "") for problem in problems]


def tree(path: Path, text: str | bytes) -> ConfigNode:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    document, problems = read(path)
    assert problems == []
    assert document is not None
    return document.root


def refusal(path: Path, text: str | bytes) -> list[str]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    document, problems = read(path)
    assert document is None
    return problems


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "amps.xml"


def test_elements_keep_text_attributes_order_and_place(file: Path) -> None:
    root = tree(
        file,
        '<AMPSConfig>\n  <Name>\n    a<!-- c -->b </Name>\n\n<X k="v"/><X>2</X>\n</AMPSConfig>',
    )
    assert [(node.tag, node.text, node.location.line) for node in root.children] == [
        ("Name", "ab", 2),
        ("X", "", 5),
        ("X", "2", 5),
    ]
    assert root.location == Location(str(file), 1)
    assert root.find("X") is root.children[1]
    assert root.find("Y") is None
    assert [node.text for node in root.all("X")] == ["", "2"]
    assert root.children[1].attributes == {"k": "v"}
    assert root.value("Name") == "ab"
    assert root.value("Y") is None
    assert root.value("Y", "default") == "default"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbf<A>\xc3\xa4</A>", "\u00e4"),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><A>\u00e4</A>'.encode("latin-1"), "\u00e4"),
        ("\ufeff<A>\u00e4</A>".encode("utf-16-le"), "\u00e4"),
        ("\ufeff<A>\u00e4</A>".encode("utf-16-be"), "\u00e4"),
        ('\ufeff<?xml version="1.0" encoding="UTF-16"?><A>z</A>'.encode("utf-16-le"), "z"),
        (b"<A><![CDATA[ 1 < 2 && ]]></A>", "1 < 2 &&"),
        (b"<A>&lt;&amp;&#228;</A>", "<&\u00e4"),
        (b"<A>a<?hidden instruction?>b</A>", "ab"),
    ],
)
def test_encodings_and_notations_of_text(file: Path, content: bytes, text: str) -> None:
    assert tree(file, content).text == text


def test_lines_are_known_in_long_files(file: Path) -> None:
    root = tree(file, "<A>" + "\n" * 70_000 + "<B>x</B>\n</A>")
    assert root.children[0].location.line == 70_001


def test_namespaces_and_editor_attributes_do_not_matter(file: Path) -> None:
    root = tree(
        file,
        '<AMPSConfig xmlns="urn:x" xml:space="preserve"'
        ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
        ' xsi:noNamespaceSchemaLocation="amps_config.xsd"><p:Name xmlns:p="urn:p" p:a="1"/>'
        "</AMPSConfig>",
    )
    assert root.tag == "AMPSConfig"
    assert root.attributes == {}
    assert root.children[0].tag == "p:Name"
    assert root.children[0].attributes == {"p:a": "1"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "amps.xml: error: is empty; expected an XML file"),
        (" \n", "amps.xml: error: is empty; expected an XML file"),
        ("Name=x", "amps.xml:1: error: the file is not XML: expected an element such as <AMPSConf"),
        ("<A>\n<B>\n</A>", "amps.xml:3: error: </A> does not match <B> opened on line 2"),
        ("<A>\n<B>", "amps.xml:2: error: <B> opened on line 2 is never closed"),
        ("<A>\n<!-- a -- b -->\n</A>", "amps.xml:2: error: a comment must not contain two hyphens"),
        ("<A>\n<!-- </A>", "amps.xml:2: error: a comment is opened with <!-- and never closed"),
        ("<A>a & b</A>", "amps.xml:1: error: an & starts a reference such as &lt;; write &amp;"),
        ("<A>&nbsp;</A>", "amps.xml:1: error: only the references &amp; &lt; &gt; &quot; and"),
        ("<A>1 < 2</A>", "amps.xml:1: error: a < must be followed by the name of an element"),
        ("<A/><B/>", "amps.xml:1: error: there is something after the end of the outermost"),
        ("<A x=1/>", "amps.xml:1: error: the value of an attribute must be in quotes"),
        ("<A x='1' x='2'/>", "amps.xml:1: error: the same attribute is given twice"),
        ("<A>\x01</A>", "amps.xml:1: error: there is a character that XML does not allow"),
        ("<p:A/>", "amps.xml:1: error: a name has a prefix that is not declared with xmlns"),
        ("\n<?xml version='1.0'?><A/>", "amps.xml:2: error: the <?xml ...?> declaration must be"),
        ("<A>" * 150 + "</A>" * 150, "amps.xml:1: error: elements are nested more than 100 deep"),
        ("<A>" * 99_999, "amps.xml:1: error: elements are nested too deeply, or a text is too"),
        (b"<A>\n\xff</A>", "amps.xml:2: error: byte 0xff is not text in utf-8; expected UTF-8"),
        (
            b'<?xml version="1.0" encoding="ebcdic-x"?><A/>',
            "amps.xml:1: error: encoding 'ebcdic-x'",
        ),
        (b'<?xml version="1.0" encoding="zlib"?><A/>', "amps.xml:1: error: encoding 'zlib' is not"),
        (
            '<!-- c -->\n<!DOCTYPE A [<!ENTITY a "aaaa">]><A>&a;</A>',
            "amps.xml:2: error: a document type (<!DOCTYPE ...>) is not accepted; use Include",
        ),
        (
            '<?xml version="1.0"?><!DOCTYPE A SYSTEM "http://localhost/a.dtd"><A/>',
            "amps.xml:1: error: a document type (<!DOCTYPE ...>) is not accepted",
        ),
    ],
)
def test_unusable_files_say_where_and_why(file: Path, content: str | bytes, problem: str) -> None:
    problems = refusal(file, content)
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_nesting_up_to_the_limit_is_accepted(file: Path) -> None:
    assert tree(file, "<A>" * MAX_DEPTH + "</A>" * MAX_DEPTH).tag == "A"


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    assert read(tmp_path / "none.xml")[1] == [
        "none.xml: error: cannot be read: there is no such file"
    ]
    (tmp_path / "folder").mkdir()
    assert read(tmp_path / "folder")[1] == [
        "folder: error: cannot be read: it is a directory; expected a file"
    ]
    assert read(tmp_path / "nul\0.xml")[0] is None
    assert read(tmp_path / ("long" * 200))[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "<A/>",
        '<?xml version="1.0" encoding="latin-1"?><!-- 1 -->\n<A b="&lt;&quot;&#10;x"/>\n<?pi x?>',
        "<A> text <!-- ${NOT_EXPANDED} --> more <B><![CDATA[<&]]></B>&#13; </A>",
        '<AMPSConfig xmlns="urn:x"><p:B xmlns:p="urn:p" p:c="1"/></AMPSConfig>',
    ],
)
def test_the_expanded_text_loads_to_the_same_tree(file: Path, text: str) -> None:
    file.write_text(text)
    first, _ = read(file)
    assert first is not None
    file.write_text(first.expanded_text)
    second, _ = read(file)
    assert second is not None
    assert second.expanded_text == first.expanded_text
    assert shape(second.root) == shape(first.root)


def shape(node: ConfigNode) -> object:
    return node.tag, node.text, dict(node.attributes), [shape(child) for child in node.children]


def test_comments_are_printed(file: Path) -> None:
    file.write_text("<!-- one -->\n<A><!-- two --><B/></A>\n<!-- three -->")
    document, _ = read(file)
    assert document is not None
    assert document.expanded_text == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        "<!-- one -->\n<A><!-- two --><B/></A>\n<!-- three -->\n"
    )


def test_problems_print_in_the_order_of_files_and_lines() -> None:
    problems = Problems()
    problems.register_file("main.xml")
    problems.warning(Location("included.xml", 1), "Target", "is odd")
    problems.error(Location("main.xml", 9), "Transport/Type", "is missing", "add it")
    problems.info(Location("main.xml", 2), "", "hello")
    problems.error(Location("main.xml", 9), "Transport/Type", "is missing", "add it")
    assert [str(problem) for problem in problems] == [
        "main.xml:2: info: hello",
        "main.xml:9: error: Transport/Type: is missing; add it",
        "included.xml:1: warning: Target: is odd",
    ]
    assert len(problems) == 3
    assert problems.has_errors


def test_warnings_do_not_keep_a_configuration_from_being_used() -> None:
    problems = Problems()
    problems.warning(Location("main.xml", 1), "Name", "is odd")
    assert not problems.has_errors
    assert [problem.severity for problem in problems] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("<B/>" * MAX_ELEMENTS, "amps.xml:1: error: the configuration has more than 100,000 elem"),
        (
            "<B " + " ".join(f"a{n}='1'" for n in range(MAX_ATTRIBUTES + 1)) + "/>",
            "amps.xml:1: error: more than 100 attributes",
        ),
        ("x" * 6_000_000, "amps.xml:1: error: the configuration is larger than 5,242,880 bytes"),
    ],
    ids=["elements", "attributes", "text"],
)
def test_the_size_of_a_configuration_is_bounded(file: Path, content: str, problem: str) -> None:
    problems = refusal(file, f"<A>{content}</A>")
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_a_file_beyond_all_measure_is_not_read(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(MAX_FILE_BYTES + 1)
    assert read(file)[1] == ["amps.xml: error: is larger than 64 MB, too large to be read"]
