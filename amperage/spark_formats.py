"""The formats that Spark discovers in the packages `pyspark_amps...`.

Spark imports all packages with a name beginning with `pyspark_` when it first looks for a Python
format. An error there would disable the formats of all packages. Therefore a format that cannot be
imported is replaced by one that raises the reason when used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NoReturn, cast

from pyspark.sql.datasource import DataSource

from amperage.own import foreign_origin


class SparkFormatError(Exception):
    """A format cannot be used; the text has the reason."""


def found(name: str, module: str, source: str) -> type[DataSource]:
    """Return the data source class of a format.

    Args:
        name: the format's name for `format()`.
        module: the module of the class.
        source: the name of the class.

    Returns:
        The class; if it cannot be imported, a class that raises the reason whenever it is used.
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
        """Raises `SparkFormatError` with the reason."""

        @classmethod
        def name(cls) -> str:
            """Return the name for `format()`."""
            return its_name

        schema = reader = streamReader = writer = streamWriter = _telling(its_name, why)  # noqa: N815 - Spark's names

    return MissingDataSource


def _telling(name: str, why: str) -> Callable[..., NoReturn]:
    def tell(*_: object) -> NoReturn:
        raise SparkFormatError(f"format {name}: {why}")

    return tell
