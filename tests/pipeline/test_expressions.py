"""Every line of the case files of expressions, as a column of a DataFrame."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import VariantVal

from pipeline.configuration import read_configuration
from pipeline.expressions import Environment, Message, matches, value
from server.expressions import ContextKind, ExpressionError, semantics
from server.message_types.base import Value
from tests.expressions.cases import Case, clock, good_cases, same

CONFIGURATION = """
<AMPSConfig>
  <Name>node-1</Name>
  <Group>group-1</Group>
  <Modules>
    <Module><Name>legacy</Name><Library>libamps_udf_legacy_compatibility.so</Library></Module>
  </Modules>
</AMPSConfig>
"""
CHUNK = 60
"""Columns that are evaluated at once: Spark makes code for each."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The instance that the case files take for granted."""
    path = tmp_path_factory.mktemp("expressions") / "config.xml"
    path.write_text(CONFIGURATION)
    return Environment(read_configuration(str(path)), moment=clock())


def chunks(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    """Some cases at a time, all of the same record, context and kind of place."""
    start = 0
    for end in range(1, len(cases) + 1):
        last = cases[start]
        if (
            end == len(cases)
            or end - start == CHUNK
            or (cases[end].record, cases[end].previous, cases[end].context, cases[end].kind)
            != (last.record, last.previous, last.context, last.kind)
        ):
            yield cases[start:end]
            start = end


def expression_of(case: Case) -> str:
    """The expression, without the name that enrichment gives its result."""
    return case.text.rpartition(" AS ")[0] if case.kind is ContextKind.ENRICHMENT else case.text


def evaluated(
    spark: SparkSession, environment: Environment, cases: Sequence[Case]
) -> Iterator[tuple[Case, Any, bool]]:
    """Some cases with their values, and whether they match as filters."""
    first = cases[0]
    previous = None if first.previous is None else F.lit(json.dumps(first.previous))
    if first.kind is ContextKind.ENRICHMENT and previous is None:
        previous = F.lit(None).cast("string")
    context = {
        name: F.lit(Decimal(known) if name == "sow_key_hash" else known)
        for name, known in first.context.items()
    }
    message = Message(F.lit(json.dumps(first.record)), previous=previous, context=context)
    columns = []
    for number, case in enumerate(cases):
        text = expression_of(case)
        columns.append(value(text, message, environment).alias(f"value {number}"))
        columns.append(matches(text, message, environment).alias(f"match {number}"))
    results = iter(spark.range(1).select(*columns).collect()[0])
    return ((case, python_value(next(results)), next(results)) for case in cases)


def expected(case: Case) -> Value:
    """What the case states; the size of a message, Spark knows of every one."""
    if case.text == "MESSAGE_SIZE()" and not case.context:
        return len(json.dumps(case.record))
    return None if case.result == "" else case.result


def test_every_case_has_its_result(
    spark: SparkSession, environment: Environment, pytestconfig: pytest.Config
) -> None:
    """The one that all back ends have, as a value and as a match.

    Spark evaluates cases with the code that tests/expressions tests with all of them: every case in
    long runs, in others every sixth one.
    """
    wrong = []
    step = 1 if pytestconfig.getoption("--long") else 6
    for cases in chunks(list(good_cases())[::step]):
        for case, got, match in evaluated(spark, environment, cases):
            result = expected(case)
            if not same(got, result) or match is not (semantics.truth(result) is True):
                wrong.append(f"{case.line}: {case.text} gives {got!r}, {match}")
    assert wrong == []


def python_value(found: VariantVal) -> Any:
    """A VARIANT as a value of an expression."""
    result = found.toPython()
    if isinstance(result, Decimal):
        return int(result)
    if isinstance(result, bytes | bytearray):
        return bytes(result).decode("utf-8", "surrogateescape")
    return result


@pytest.mark.usefixtures("spark")
def test_a_mistake_is_told_at_once() -> None:
    """By the driver, with the place."""
    with pytest.raises(ExpressionError, match="HERE -->"):
        matches("/qty >", Message(F.lit("")))
