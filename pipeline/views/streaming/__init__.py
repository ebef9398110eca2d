"""Views of a configuration that Spark updates as their topics change.

events        changes of records, as rows; sources: journals, a server
changes       the data between the stages
latest        the first stage: events to changes of rows
joins         the stages in between: rows of several topics
groups        the last stage: rows to groups, and groups to events of the view's records
plan          a view, composed of its stages
targets       destinations of the events: a topic, Parquet files
checkpoint    the identity of a query's state
query         a running streaming view

Theory of operation. Each stage keeps in Spark's state store the data that it needs to process a
change: the row of each record, both sides of a join, the accumulators of each group. It converts
the changes that the previous stage makes of a micro-batch to changes of its own, so that the cost
depends on the number of changes, not on the size of the view. State is committed with the
micro-batch: a micro-batch that is run again, by the same process or by another, begins with the
state of the one before.
"""

from pipeline.views.streaming.query import stream_view

__all__ = ["stream_view"]
