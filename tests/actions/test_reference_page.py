"""The page about actions says what is true, and every module has its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from actions.catalogue import ACTION_MODULES
from actions.reference_page import BEGIN, modules_part
from actions.registry import CONDITIONS, STEPS, TRIGGERS
from config_schema.catalogue import ModuleKind

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "actions.md").read_text("utf-8")
BUILT = {ModuleKind.ON: TRIGGERS, ModuleKind.DO: STEPS, ModuleKind.IF: CONDITIONS}


def test_the_modules_are_those_of_the_catalogue() -> None:
    assert PAGE.partition(BEGIN)[1] + PAGE.partition(BEGIN)[2] == modules_part(), (
        "run python -m actions.reference_page docs/actions.md"
    )


@pytest.mark.parametrize("kind", BUILT)
def test_every_module_of_the_catalogue_is_built(kind: ModuleKind) -> None:
    assert BUILT[kind].keys() == ACTION_MODULES[kind].keys()


@pytest.mark.parametrize("kind", BUILT)
def test_the_class_of_a_single_module_has_its_name(kind: ModuleKind) -> None:
    for name, module in BUILT[kind].items():
        words = name.removeprefix("amps-action-").split("-")
        if isinstance(module, type):
            assert module.__name__ == "".join(map(str.capitalize, words))
