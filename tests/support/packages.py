"""What is installed."""

PACKAGES = (
    "actions",
    "amperage",
    "config_schema",
    "pipeline",
    "pyspark_amps",
    "pyspark_amps_journal",
    "server",
)
"""Packages of Python, at the top of the tree."""
