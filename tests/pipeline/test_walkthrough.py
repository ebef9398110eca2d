"""The pages about Spark, and the notebook, are run: what a block prints is what stands below it."""

from __future__ import annotations

import contextlib
import io
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.documentation.fences import fences
from tests.support.server import free_port, running_configuration

ROOT = Path(__file__).parents[2]
JOURNALS = "docs/pipeline_journals.md"
TOPICS = "docs/pipeline.md"
POSITIONS = """
<View>
  <Name>positions</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/symbol</Field><Field>SUM(/qty) AS /qty</Field></Projection>
  <Grouping><Field>/symbol</Field></Grouping>
</View>
"""


_NOTEBOOK = runpy.run_path(str(ROOT / "scripts" / "make_notebook.py"))


def test_the_notebook_is_that_of_the_page() -> None:
    """Otherwise: make pages."""
    assert (ROOT / "docs" / "pipeline_journals.ipynb").read_text("utf-8") == _NOTEBOOK["notebook"]()


def test_the_walkthrough_prints_what_it_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells of the notebook: what they print is what stands on the page."""
    port = free_port()
    notebook = json.loads((ROOT / "docs" / "pipeline_journals.ipynb").read_text("utf-8"))
    cells = ["".join(one["source"]) for one in notebook["cells"] if one["cell_type"] == "code"]
    first, *middle, last = cells
    (tmp_path / "docs").mkdir()
    (tmp_path / "sample_configs").mkdir()
    text = (ROOT / "sample_configs" / "pipeline.xml").read_text("utf-8")
    listening = text.replace("<InetAddr>localhost:9007<", f"<InetAddr>127.0.0.1:{port}<")
    (tmp_path / "sample_configs" / "pipeline.xml").write_text(listening)
    monkeypatch.chdir(tmp_path / "docs")
    names: dict[str, Any] = {}
    blocks = blocks_with_output(JOURNALS)
    assert [code.rstrip("\n") for code, _ in blocks] == middle
    run(first.replace("9007", f"{port}"), names)
    directory = Path(names["directory"])
    try:
        for code, expected in blocks:
            printed = run(adapted(code, directory, port), names)
            assert lines(printed.replace(f"{directory}/", "")) == lines(expected), code
    finally:
        run(last.replace("spark.stop()", ""), names)  # other tests go on with this one
    assert not directory.exists()
    assert names["instance"].returncode == 0


def test_the_page_of_topics_works(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block of Python and SQL, in their order, as far as this machine has what it needs."""
    monkeypatch.chdir(tmp_path)
    port = free_port()
    text = (ROOT / "sample_configs" / "pipeline.xml").read_text("utf-8")
    text = text.replace("</SOW>", f"{POSITIONS}</SOW>")
    text = text.replace("<InetAddr>localhost:9007<", f"<InetAddr>127.0.0.1:{port}<")
    frame = spark.createDataFrame(
        [('{"symbol": "IBM", "qty": 200, "price": 2}', "1")], "body STRING, sow_key STRING"
    )
    names: dict[str, Any] = {"spark": spark, "frame": frame}
    with running_configuration(tmp_path, text, port), contextlib.redirect_stdout(io.StringIO()):
        for fence in fences("python", "sql", page=TOPICS):
            code = fence.text.replace("localhost:9007", f"127.0.0.1:{port}")
            for name in ("minutes", "checkpoint"):  # Java is in another directory
                code = code.replace(f'"{name}"', f'"{tmp_path}/{name}"')
            if fence.language == "sql":
                for statement in filter(str.strip, code.split(";")):
                    spark.sql(statement)
            else:
                exec(compile(code, str(fence), "exec"), names)
        assert names["orders"].count() == 0, (
            "there is one order, and its quantity is no more than 100"
        )
        assert names["positions"].count() == 1


def run(code: str, names: dict[str, Any]) -> str:
    """Run a block; gives what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "page", "exec"), names)
    return printed.getvalue()


def blocks_with_output(page: str) -> list[tuple[str, str]]:
    """The blocks of Python, each with the output that stands below it."""
    blocks: list[tuple[str, str]] = []
    for fence in fences("python", "text", page=page):
        if fence.language == "python":
            blocks.append((fence.text, ""))
        else:
            blocks[-1] = (blocks[-1][0], fence.text)
    assert len(blocks) > 5
    return blocks


def adapted(code: str, directory: Path, port: int) -> str:
    """A block for another port, and for a session that was started in another directory."""
    for name in ("journal", "export", "then", "table"):
        code = code.replace(f'"{name}"', f'"{directory}/{name}"')
    code = re.sub(rf'(\[\s*)"{directory}/export"', r'\1"export"', code)  # the name of the job
    return code.replace("localhost:9007", f"127.0.0.1:{port}")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]
