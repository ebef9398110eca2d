"""Where Spark finds `format("amps")` by itself.

It looks through all packages that are called `pyspark_...` for a `DefaultSource`.
"""

from __future__ import annotations

from amperage.spark_formats import found

DefaultSource = found("amps", "pipeline.amps.source", "AmpsDataSource")
