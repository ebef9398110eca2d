"""docs/pipeline_journals.md is run: what each block of Python prints is what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.server import free_port, running_configuration

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pipeline_journals.md").read_text("utf-8")
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def test_the_walkthrough_prints_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = free_port()
    text = (ROOT / "sample_configs" / "pipeline.xml").read_text("utf-8")
    (tmp_path / "pipeline.xml").write_text(text)
    blocks = BLOCK.findall(PAGE)
    assert len(blocks) > 5
    names: dict[str, Any] = {}
    listening = text.replace("<InetAddr>9007<", f"<InetAddr>127.0.0.1:{port}<")
    with running_configuration(tmp_path, listening, port):
        for code, expected in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(adapted(code, tmp_path, port), "page", "exec"), names)
            assert lines(printed.getvalue().replace(f"{tmp_path}/", "")) == lines(expected), code


def adapted(code: str, directory: Path, port: int) -> str:
    """A block for another port, and for a session that was started in another directory."""
    for name in ("journal", "export", "then"):
        code = code.replace(f'"{name}"', f'"{directory}/{name}"')
    code = code.replace(f'main(["{directory}/export"', 'main(["export"')
    return code.replace("localhost:9007", f"127.0.0.1:{port}")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]
