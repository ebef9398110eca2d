"""The pages make a site in which no link is broken, and which needs nobody else to be read."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from lxml import html

from tests.documentation.fences import ROOT, pages
from tests.support.long_form import ONLY_LONG

LIST: Final = ROOT / "docs" / "README.md"
SECTIONS: Final = ("Tutorial", "How-to guides", "Reference", "Commands", "Explanation", "Project")

_LINK: Final = re.compile(r"\]\(([^)#:]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    recipe = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    options = re.search(r"sphinx-build (?P<options>.*) --doctree-dir", recipe)
    assert options
    out = tmp_path_factory.mktemp("site")
    words = [
        *options["options"].split(),
        "--doctree-dir",
        str(out / "read"),
        ".",
        str(out / "site"),
    ]
    command = [sys.executable, "-m", "sphinx", *words]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert built.returncode == 0, built.stderr
    return out / "site"


def listed() -> list[Path]:
    """The pages that the list of pages has, in its order."""
    return [(LIST.parent / path).resolve() for path in _LINK.findall(LIST.read_text())]


def test_the_list_has_every_page_once() -> None:
    """What is new is put into docs/README.md, under the kind of page that it is."""
    manual = sorted((ROOT / "man").glob("*.1"))
    outer = [ROOT / "CHANGELOG.md"]
    wanted = {page for page in [*pages(), *outer, *manual] if page != LIST}
    once = [page for page in listed() if page != ROOT / "README.md"]
    assert len(once) == len(set(once))
    assert set(listed()) == wanted


def test_the_list_has_its_kinds_of_pages() -> None:
    assert tuple(re.findall(r"^## (.*)$", LIST.read_text(), re.MULTILINE)) == SECTIONS


@ONLY_LONG
def test_the_navigation_leads_to_every_page(site: Path) -> None:
    first = html.parse(str(site / "docs" / "README.html"))
    captions = first.xpath("//div[@class='sidebar-tree']/p[@class='caption']//text()")
    assert tuple(captions) == SECTIONS
    links = first.xpath("//div[@class='sidebar-tree']//a/@href")
    found = {(site / "docs" / link).resolve() for link in links}
    built = {site / path.relative_to(ROOT).with_suffix(".html") for path in listed()}
    assert built <= found
    assert all(path.is_file() for path in found)


@ONLY_LONG
def test_the_site_begins_at_its_index(site: Path) -> None:
    (link,) = html.parse(str(site / "index.html")).xpath("//a/@href")
    assert (site / link).is_file()


@ONLY_LONG
def test_it_can_be_searched(site: Path) -> None:
    words = (site / "searchindex.js").read_text()
    assert '"bookmark"' in words or "bookmark:" in words
    assert (site / "search.html").is_file()


def from_elsewhere(page: Path) -> Iterator[str]:
    """What a browser would ask others for, to show a page."""
    asked = "//script/@src | //img/@src | //link[not(@rel='canonical')]/@href | //iframe/@src"
    yield from (link for link in html.parse(str(page)).xpath(asked) if "//" in link)


@ONLY_LONG
def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    read = sorted(site.rglob("*.html"))
    assert len(read) > len(listed())
    assert {
        str(page): list(from_elsewhere(page)) for page in read if list(from_elsewhere(page))
    } == {}
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text()), style


@ONLY_LONG
def test_a_manual_page_is_a_page(site: Path) -> None:
    """With its options, what is in them in bold, and links to others."""
    page = html.parse(str(site / "man" / "ampServer.html"))
    assert "--verify-config" in page.xpath("//dt/strong/text()")
    links = page.xpath("//section[@id='see-also']//a[contains(@class, 'internal')]/@href")
    assert "spark.html" in links
    assert "../docs/configuration.html" in links


def test_a_broken_link_fails(tmp_path: Path) -> None:
    """So does an anchor that is not there, and a page that the list does not have."""
    (tmp_path / "docs").mkdir()
    page = "# Page\n\n[a page](gone.md), [a place](README.md#gone)\n"
    (tmp_path / "docs" / "README.md").write_text(page)
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-c", "scripts/site", str(tmp_path)]
    built = subprocess.run(
        [*command, str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert built.returncode != 0
    for said in ("'gone.md'", "gone", "other.md"):
        assert said in built.stderr
    assert "Traceback" not in built.stderr
