"""Configurations damaged at random: the compiler judges every one of them and never breaks."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_schema.compile import compile_config
from config_schema.document import ConfigNode, load
from config_schema.problems import Problems
from config_schema.validate import validate
from tests.config_schema.program import Program
from tests.config_schema.test_compile_spec import FULL
from tests.support.chances import examples

TEXTS = ["", "x", "/a", "[", "(", "1", "0", "-1", "9007", "json", "orders", "{{X}}", "*", "=", "é"]
RANDOM = st.randoms(use_true_random=False)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> ConfigNode:
    path: Path = tmp_path_factory.mktemp("fuzz") / "config.xml"
    path.write_text(FULL.strip())
    problems = Problems()
    document = load(str(path), defines={}, environ={}, problems=problems)
    assert document is not None
    return validate(document, problems)


def damage(node: ConfigNode, chance: random.Random, tags: list[str]) -> ConfigNode:
    """Return `node` with some elements below it left out, doubled, renamed or with other text."""
    children: list[ConfigNode] = []
    for child in node.children:
        match chance.randrange(40):
            case 0:
                continue
            case 1:
                children += [damage(child, chance, tags), child]
            case 2:
                children.append(replace(child, tag=chance.choice(tags)))
            case 3:
                children.append(replace(child, text=chance.choice(TEXTS)))
            case 4:
                children.append(replace(child, children=()))
            case _:
                children.append(damage(child, chance, tags))
    return replace(node, children=tuple(children))


def tags_of(node: ConfigNode) -> list[str]:
    return [node.tag, *(tag for child in node.children for tag in tags_of(child))]


@settings(max_examples=examples(300), deadline=None)
@given(RANDOM)
def test_a_damaged_configuration_is_judged(tree: ConfigNode, chance: random.Random) -> None:
    damaged = damage(tree, chance, tags_of(tree))
    problems = Problems()
    spec = compile_config(damaged, Program(), problems)
    assert (spec is None) == problems.has_errors
    assert all(problem.message and problem.element for problem in problems)
