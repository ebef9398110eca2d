"""Tables of benchmarks get into the pages that have a place for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tables import print_table, written

PLACES = """# A page

<!-- benchmark: one -->
old
<!-- end of benchmark: one -->

<!-- benchmark: two -->
<!-- end of benchmark: two -->

its end
"""


def test_tables_replace_those_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PLACES)
    for rate in (1234.0, 5678.0):
        with written("one", [page]):
            print_table("Rates", ["", "a second"], [["a | b", rate], ["none", None]])
    text = page.read_text()
    assert "old" not in text
    assert "1,234" not in text
    assert "**Rates**\n\n|  | a second |\n|---|---:|\n| a \\| b | 5,678 |\n| none | - |\n" in text
    assert "processors (" in text
    assert text.endswith(PLACES[PLACES.index("<!-- end of benchmark: one") :])
    assert capsys.readouterr().out.count("a second") == 2


def test_a_page_without_a_place_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PLACES)
    place = r"<!-- benchmark: three -->.* in page\.md"
    with pytest.raises(ValueError, match=place), written("three", [page]):
        raise AssertionError("measured for nothing")
