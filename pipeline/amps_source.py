"""`format("amps")`: topics of a running server, read and written."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class AmpsDataSource(DataSource):
    """A topic of a server as a DataFrame."""

    @classmethod
    def name(cls) -> str:
        """What `format()` calls it."""
        return "amps"
