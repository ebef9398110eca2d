"""Where Spark finds `format("amps-journal")` by itself; see `pyspark_amps`."""

from __future__ import annotations

from amperage.spark_formats import found

DefaultSource = found("amps-journal", "pipeline.journal.source", "AmpsJournalDataSource")
