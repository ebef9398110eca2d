"""Views of a configuration kept up by Spark as their topics change.

events        what happens to records, as rows; sources: journals, a server
changes       what travels between the stages
latest        the first stage: events become changes of rows
joining       the stages in between: rows of several topics
grouping      the last stage: rows become groups, and groups what happens to the view's records
plan          a view, put together of its stages
targets       where that goes: a topic, Parquet files
checkpoint    what a query's state belongs to
query         a streaming view at work

Theory of operation. Each stage keeps in Spark's state store what it needs to tell what a change
means: the row of each record, both sides of a join, the accumulators of each group. From the
changes that the stage before makes of a micro-batch it makes changes of its own, so that the work
is that of what changes, whatever the size of the view. State is committed with the micro-batch:
when one is run again, by the same process or by another, it begins with the state of the one
before.
"""

from pipeline.views.streaming.query import stream_view

__all__ = ["stream_view"]
