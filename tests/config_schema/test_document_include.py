"""Include: files put together, where their elements came from, and what keeps that bounded."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from config_schema.document import ConfigDocument, ConfigNode, load
from config_schema.problems import Problems


def write(directory: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def assemble(directory: Path, files: Mapping[str, str]) -> tuple[ConfigDocument | None, list[str]]:
    """Write the files and load main.xml; the problems come with the directory left out."""
    write(directory, files)
    problems = Problems()
    document = load(str(directory / "main.xml"), defines={}, environ={}, problems=problems)
    return document, [str(problem).replace(f"{directory}/", "") for problem in problems]


def outline(node: ConfigNode, directory: Path) -> list[str]:
    """Each element with its place, indented by its depth."""
    place = str(node.location).replace(f"{directory}/", "")
    inner = [f" {line}" for child in node.children for line in outline(child, directory)]
    return [f"{node.tag} {place}", *inner]


def test_an_include_becomes_the_content_of_the_file(tmp_path: Path) -> None:
    document, problems = assemble(
        tmp_path,
        {
            "main.xml": "<A>\n<Before/>\n<Include> parts/one.xml </Include>\n<After/>\n</A>",
            "parts/one.xml": '<?xml version="1.0"?>\n<!-- c -->\n<One>\n<Include>two.xml</Include>'
            "</One>\n<Another/>\n",
            "parts/two.xml": "\n<Two>x</Two>",
        },
    )
    assert problems == []
    assert document is not None
    assert outline(document.root, tmp_path) == [
        "A main.xml:1",
        " Before main.xml:2",
        " One parts/one.xml:3",
        "  Two parts/two.xml:2",
        " Another parts/one.xml:5",
        " After main.xml:4",
    ]
    assert "Include" not in document.expanded_text


def test_comments_say_what_was_included(tmp_path: Path) -> None:
    document, _ = assemble(
        tmp_path,
        {
            "main.xml": '<A>\n  <Include comment="true">b--c.xml</Include>\n</A>',
            "b--c.xml": "<B/>\n<C/>",
        },
    )
    assert document is not None
    assert document.expanded_text.splitlines()[1:] == [
        "<A>",
        "  <!-- Start <Include>b- -c.xml</Include> -->",
        "  <B/>",
        "<C/>",
        "  <!-- End <Include>b- -c.xml</Include> -->",
        "</A>",
    ]


@pytest.mark.parametrize(
    ("default", "attribute", "commented"),
    [
        ("", "", False),
        ("true", "", True),
        ("enabled", "", True),
        ("false", "", False),
        ("true", ' comment="false"', False),
        ("false", ' comment="enabled"', True),
    ],
)
def test_the_default_for_comments(
    tmp_path: Path, default: str, attribute: str, commented: bool
) -> None:
    option = f"<ConfigIncludeCommentDefault>{default}</ConfigIncludeCommentDefault>"
    include = f"<Include{attribute}>b.xml</Include>"
    document, _ = assemble(
        tmp_path, {"main.xml": f"<A>{include}{option if default else ''}</A>", "b.xml": "<B/>"}
    )
    assert document is not None
    assert ("Start <Include>b.xml</Include>" in document.expanded_text) is commented


def test_the_expanded_text_loads_without_the_included_files(tmp_path: Path) -> None:
    files = {
        "main.xml": '<A>x<Include comment="true">b.xml</Include>y<Include>b.xml</Include></A>',
        "b.xml": '<B k="1"><![CDATA[<&]]></B><!-- end -->',
    }
    first, _ = assemble(tmp_path / "all", files)
    assert first is not None
    second, problems = assemble(tmp_path / "alone", {"main.xml": first.expanded_text})
    assert problems == []
    assert second is not None
    assert second.expanded_text == first.expanded_text
    assert [child.text for child in second.root.children] == ["<&", "<&"]
    assert second.root.text == first.root.text == "xy"


@pytest.mark.parametrize(
    ("main", "included", "problem"),
    [
        (
            "<Include>none.xml</Include>",
            "<B/>",
            "main.xml:2: error: A/Include: none.xml cannot be read: there is no such file",
        ),
        (
            "<Include>.</Include>",
            "<B/>",
            "main.xml:2: error: A/Include: . cannot be read: it is a directory; expected a file",
        ),
        (
            "<Include>main.xml</Include>",
            "<B/>",
            "main.xml:2: error: A/Include: a file must not include itself: main.xml:2 includes",
        ),
        (
            "<Include>b.xml</Include>",
            "<B>\n</C>",
            "b.xml:2: error: </C> does not match <B> opened on line 1",
        ),
        (
            "<Include>b.xml</Include>",
            "<B>",
            "b.xml:1: error: <B> opened on line 1 is never closed",
        ),
        (
            "<Include>b.xml</Include>",
            "<B/>\n</A>",
            "b.xml:2: error: </A> closes an element that was not opened",
        ),
        (
            "<Include>b.xml</Include>",
            "<!DOCTYPE B><B/>",
            "b.xml:1: error: a document type (<!DOCTYPE ...>) is not accepted; use Include for",
        ),
        (
            "<Include>b.xml</Include>",
            "",
            "main.xml:2: error: A/Include: b.xml is empty; expected an XML file",
        ),
        (
            "<Include>b.xml</Include>",
            "<!-- nothing -->",
            "b.xml:1: error: the file cannot be included: expected one or more XML elements",
        ),
        (
            "<Include>b.xml</Include>",
            "<B/> text",
            "b.xml:1: error: the file cannot be included: expected one or more XML elements",
        ),
        (
            "<Include/>",
            "<B/>",
            "main.xml:2: error: A/Include: expected the name of a file to include, and",
        ),
        (
            "<Include><B/></Include>",
            "<B/>",
            "main.xml:2: error: A/Include: expected the name of a file to include, and",
        ),
        (
            '<Include coment="true">b.xml</Include>',
            "<B/>",
            "main.xml:2: error: A/Include: unknown attribute 'coment'; the one attribute here is",
        ),
        (
            '<Include comment="x">b.xml</Include>',
            "<B/>",
            "main.xml:2: error: Include/@comment: 'x' is not a switch: expected true or false,",
        ),
        (
            "<ConfigCycleDetectionThreshold>x</ConfigCycleDetectionThreshold>",
            "<B/>",
            "main.xml:2: error: A/ConfigCycleDetectionThreshold: 'x' is not a size: expected a",
        ),
    ],
)
def test_what_is_wrong_with_an_include(
    tmp_path: Path, main: str, included: str, problem: str
) -> None:
    document, problems = assemble(tmp_path, {"main.xml": f"<A>\n{main}</A>", "b.xml": included})
    assert document is not None
    assert not document.is_complete
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_a_cycle_is_told_from_include_to_include(tmp_path: Path) -> None:
    _, problems = assemble(
        tmp_path,
        {
            "main.xml": "<A>\n<Include>b.xml</Include></A>",
            "b.xml": "<B>\n\n<Include>sub/c.xml</Include></B>",
            "sub/c.xml": "<Include>../b.xml</Include>",
        },
    )
    chain = "b.xml:3 includes sub/c.xml, sub/c.xml:1 includes sub/../b.xml"
    assert problems == [
        f"sub/c.xml:1: error: Include: a file must not include itself: {chain}",
    ]


def test_every_bad_include_is_reported_in_one_run(tmp_path: Path) -> None:
    _, problems = assemble(
        tmp_path,
        {"main.xml": "<A>\n<Include>x.xml</Include>\n<B><Include>y.xml</Include></B>\n</A>"},
    )
    assert [problem.split(": ")[0] for problem in problems] == ["main.xml:2", "main.xml:3"]


def test_a_cycle_through_a_link_is_seen(tmp_path: Path) -> None:
    os.symlink("main.xml", tmp_path / "link.xml")
    _, problems = assemble(tmp_path, {"main.xml": "<A><Include>link.xml</Include></A>"})
    assert problems == [
        "main.xml:1: error: A/Include: a file must not include itself: main.xml:1 includes link.xml"
    ]


def test_files_that_double_at_every_step_stop_at_the_threshold(tmp_path: Path) -> None:
    doubling = {
        f"{step}.xml": f"<S>{'x' * 200}</S>" + f"<Include>{step + 1}.xml</Include>" * 2
        for step in range(30)
    }
    threshold = "<ConfigCycleDetectionThreshold>64KB</ConfigCycleDetectionThreshold>"
    files = {"main.xml": f"<A>{threshold}<Include>0.xml</Include></A>", "30.xml": "<S/>"}
    document, problems = assemble(tmp_path, {**doubling, **files})
    assert document is None
    assert len(problems) == 1
    assert "the configuration is larger than 65,536 bytes here" in problems[0]


def test_the_number_of_includes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config_schema.document.MAX_INCLUDES", 100)  # 5,000 take seconds
    many = "<Include>b.xml</Include>\n" * 101
    document, problems = assemble(tmp_path, {"main.xml": f"<A>\n{many}</A>", "b.xml": "<B/>"})
    assert document is None
    assert problems == ["main.xml:102: error: more than 100 Include directives are followed"]


def test_a_long_chain_of_files_is_bounded(tmp_path: Path) -> None:
    chain = {f"{step}.xml": f"<Include>{step + 1}.xml</Include>" for step in range(200)}
    document, problems = assemble(
        tmp_path, {**chain, "main.xml": "<A><Include>0.xml</Include></A>", "200.xml": "<S/>"}
    )
    assert document is None
    assert len(problems) == 1
    assert "files are included more than 100 deep" in problems[0]
