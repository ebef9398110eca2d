"""What the tests of the pages take for the same, and what not."""

from __future__ import annotations

import pytest

from tests.documentation.fences import Fence
from tests.documentation.sessions import Ports, matches, typed

VARY = (("values vary", ""),)


def fence(text: str, notes: tuple[tuple[str, str], ...] = ()) -> Fence:
    return Fence("docs/page.md", 1, "console", text, notes)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("one\ntwo\n", "one\ntwo\n", True),
        ("one\ntwo\n", "one\n2\n", False),
        ("one\n", "one\ntwo\n", False),
        ("one\ntwo\n", "one\n", False),
        ("one …\n", "one two three\n", True),
        ("one … three\n", "one two four\n", False),
        ("{…}\n", '{"a": 1}\n', True),
        ("one\n…\nfour\n", "one\ntwo\nthree\nfour\n", True),
        ("one\n…\nfour\n", "one\nfour\n", True),
        ("one\n…\nfour\n", "one\ntwo\n", False),
        ("a. (b)\n", "a. (b)\n", True),
        ("a.\n", "ab\n", False),
        ("20261120T120000Z\n", "20261123T142244.191000Z\n", True),
        ("2026-11-20T12:00:00.1+00:00 up\n", "2026-11-23T14:22:33.8065257+00:00 up\n", True),
        ("published: 1 (41.21/s)\n", "published: 1 (8000/s)\n", True),
        ("published: 1 (41.21/s)\n", "published: 2 (41.21/s)\n", False),
        ("in 2ms.\n", "in 17ms.\n", True),
    ],
)
def test_what_is_printed_is_what_is_shown(shown: str, printed: str, same: bool) -> None:
    (command,) = typed(fence(f"$ command\n{shown}"))
    assert matches(command, printed) is same


def test_numbers_may_vary_where_the_page_says_so() -> None:
    shown = "$ command\nused 17 of 20.5\n"
    (exact,), (loose,) = typed(fence(shown)), typed(fence(shown, VARY))
    assert not matches(exact, "used 3 of 1\n")
    assert matches(loose, "used 3 of 1\n")
    assert not matches(loose, "used 3 of\n")


def test_the_beginning_is_enough_of_what_runs_on() -> None:
    (command,) = typed(fence("$ command\none\n"))
    assert matches(command, "one\ntwo\n", beginning=True)
    assert not matches(command, "two\none\n", beginning=True)


def test_commands_go_on_over_lines() -> None:
    block = fence(
        "$ one \\\n    two\nsaid\n$ cat > file <<'END'\n> $ text\n> END\n$ three\nsaid too\n"
    )
    first, second, third = typed(block)
    assert (first.command, first.shown) == ("one \\\n    two", ("said",))
    assert (second.command, second.shown) == ("cat > file <<'END'\n$ text\nEND", ())
    assert (third.command, third.shown) == ("three", ("said too",))


def test_a_block_without_a_prompt_is_no_session() -> None:
    with pytest.raises(AssertionError, match=r"docs/page\.md:1: no prompt"):
        list(typed(fence("ampServer config.xml\n")))


def test_ports_are_exchanged_and_restored() -> None:
    ports = Ports()
    text = "curl localhost:8085/x; <InetAddr>9007</InetAddr> --n=9007; 19007 90071"
    adapted = ports.adapted(text)
    assert "8085" not in adapted
    assert ">9007<" not in adapted
    assert "19007 90071" in adapted
    assert ports.restored(adapted) == text
