"""Formats that Spark finds without being told: what the packages `pyspark_amps...` hand over.

Spark imports all packages whose names begin with `pyspark_` when it first looks for a format in
Python. An error there would take everybody's formats away. So one that cannot be imported is a
format that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NoReturn, cast

from pyspark.sql.datasource import DataSource

from amperage.own import foreign_origin


class FormatError(Exception):
    """A format that cannot be used; the text says why."""


def found(name: str, module: str, source: str) -> type[DataSource]:
    """The source of a format.

    Args:
        name: what `format()` calls it.
        module: where it is.
        source: its class.

    Returns:
        The class, or one whose every use says why there is none.
    """
    for package in ("pipeline", "server", "config_schema"):
        other = foreign_origin(package)
        if other is not None:
            return _missing(
                name,
                f"{other} has the name of Amperage's package {package} and comes before it: rename"
                " it, or take its directory off the path of Python",
            )
    try:
        return cast("type[DataSource]", getattr(import_module(module), source))
    except ImportError as error:
        return _missing(
            name,
            f"{error}; it takes PySpark 4.3 or newer, and what pip install 'amperage[pipeline]'"
            " brings, for the Python that Spark runs",
        )


def _missing(its_name: str, why: str) -> type[DataSource]:
    class MissingDataSource(DataSource):
        """Tells what is missing."""

        @classmethod
        def name(cls) -> str:
            """What `format()` calls it."""
            return its_name

        schema = reader = streamReader = writer = streamWriter = _telling(its_name, why)  # noqa: N815 - Spark's names

    return MissingDataSource


def _telling(name: str, why: str) -> Callable[..., NoReturn]:
    def tell(*_: object) -> NoReturn:
        raise FormatError(f"format {name}: {why}")

    return tell
