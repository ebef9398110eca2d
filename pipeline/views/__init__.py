"""Views of a configuration on Spark, with the meaning that they have in the server.

definition    one view, compiled where it is needed: on the driver or in a worker
rows          records of underlying topics -> rows of the view; joins
groups        rows -> groups -> the view's records, in parallel
batch         a view as a DataFrame, over whatever its topics' records come from
sources       where the records below come from: a server, journals
check         a view in Spark against the same view in a server
streaming     views that are kept up as their topics change
"""

from pipeline.views.batch import view_records
from pipeline.views.streaming import stream_view

__all__ = ["stream_view", "view_records"]
