"""The types that comments in the page's modules tell, checked by TypeScript's compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Final

import pytest

from server.admin.console.assets import STATIC

OLDEST: Final = 5
"""Compilers before that do not read a comment in one line that has words before its tags."""

OPTIONS: Final = [
    *("--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022", "--module", "es2022"),
    *("--moduleResolution", "node", "--lib", "es2022,dom,dom.iterable,webworker.importscripts"),
]


@pytest.mark.process
def test_types_fit() -> None:
    compiler = shutil.which("tsc")
    if compiler is None:
        pytest.skip("there is no tsc here: npm install --global typescript@5")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"\d+", version.stdout)
    if found is None or int(found[0]) < OLDEST:
        pytest.skip(f"tsc is older than {OLDEST}: {version.stdout.strip()}")
    modules = ["js/main.js", "js/tables/worker.js"]
    modules += [str(path.relative_to(STATIC)) for path in STATIC.glob("js/pages/*.js")]
    checked = subprocess.run(
        [compiler, *OPTIONS, *modules], cwd=STATIC, capture_output=True, text=True, check=False
    )
    complaints = re.findall(r"^js/.*error.*", checked.stdout, re.MULTILINE)
    assert complaints == []
    assert "vendor/" in checked.stdout or checked.returncode == 0, checked.stdout + checked.stderr
