"""Views of a configuration on Spark, with the same semantics as in the server.

definition    one view, compiled where it is needed: on the driver or in a worker
rows          records of underlying topics -> rows of the view; joins
groups        rows -> groups -> the view's records, in parallel
batch         a view as a DataFrame, over any source of its topics' records
sources       sources of the underlying records: a server, journals
check         comparison of a view in Spark with the same view in a server
streaming     views that are updated as their topics change
"""

from pipeline.views.batch import view_records
from pipeline.views.streaming import stream_view

__all__ = ["stream_view", "view_records"]
