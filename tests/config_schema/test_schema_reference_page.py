"""The reference page and the manual page say what the schema says, about every element."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from config_schema.reference_page import anchor, chapters, main, manual, markdown, short
from config_schema.schema import ROOT, children, elements

PROJECT = Path(__file__).parents[2]
REGENERATE = "run: python -m config_schema.reference_page docs/configuration.md man/amps-config.5"


@pytest.mark.parametrize(
    ("path", "generate"), [("docs/configuration.md", markdown), ("man/amps-config.5", manual)]
)
def test_the_committed_pages_are_up_to_date(path: str, generate: object) -> None:
    assert callable(generate)
    assert (PROJECT / path).read_text(encoding="utf-8") == generate(), REGENERATE


def test_every_element_is_described_once_or_referred_to() -> None:
    entries = [entry for chapter in chapters() for entry in (chapter.head, *chapter.entries)]
    titles = [entry.title for entry in entries]
    assert len(titles) == len(set(titles))
    referred = {entry.doc.path: entry.same_as for entry in entries if entry.same_as}
    for path in elements():
        shared = next((top for top in referred if path.startswith(f"{top}/")), None)
        where = path if shared is None else path.replace(shared, referred[shared], 1)
        assert short(where) in titles


def test_a_reference_leads_to_the_same_elements() -> None:
    for chapter in chapters():
        for entry in chapter.entries:
            if entry.same_as:
                assert set(children(entry.doc.path)) == set(children(entry.same_as))


def test_headings_are_distinct_and_every_link_has_its_heading() -> None:
    page = markdown()
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    anchors = [anchor(heading) for heading in headings]
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= set(anchors)


def test_the_index_lists_every_name_and_synonym() -> None:
    index = markdown().partition("\n## Index\n")[2]
    for doc in elements().values():
        for name in (doc.name, *doc.synonyms):
            assert f"\n- `{name}`: " in index


def test_the_manual_page_has_an_entry_for_each_heading_of_the_page() -> None:
    page = manual()
    for chapter in chapters():
        for entry in (chapter.head, *chapter.entries):
            assert f"\n.TP\n\\fB{entry.title.replace('-', chr(92) + '-')}\\fR (" in page


def test_no_line_of_the_manual_page_is_a_request_by_accident() -> None:
    requests = {line.split()[0] for line in manual().splitlines() if line.startswith((".", "'"))}
    known = {".TH", ".SH", ".TP", ".PP", ".IP", ".RS", ".RE", ".nf", ".fi", ".br", ".sp", ".ad"}
    assert requests <= known


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_manual_page_is_set_without_a_warning() -> None:
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", "-rLL=80n"]
    page = manual().encode()
    made = subprocess.run(command, input=page, capture_output=True, check=True, timeout=60)
    assert made.stderr == b""


def test_an_entry_tells_defaults_other_names_and_lack_of_effect() -> None:
    page = markdown()
    durability = page.partition("\n### SOW/Topic/Durability\n")[2].partition("\n#")[0]
    assert "- Default: `persistent`" in durability
    assert "- Also written: `Duration`" in durability
    size = page.partition("\n### SOW/Topic/RecordSize\n")[2].partition("\n#")[0]
    assert "- No effect: replaced by SlabSize in AMPS 5.0" in size


def test_the_generator_writes_both_files(tmp_path: Path) -> None:
    page, manual_page = tmp_path / "configuration.md", tmp_path / "amps-config.5"
    assert main([str(page), str(manual_page)]) == 0
    assert page.read_text(encoding="utf-8") == markdown()
    assert manual_page.read_text(encoding="utf-8") == manual()


def test_the_generator_says_how_it_is_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "MARKDOWN MANUAL" in capsys.readouterr().err


def test_the_root_has_its_chapter() -> None:
    assert chapters()[0].head.doc.path == ROOT
