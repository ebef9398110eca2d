"""The computation of views: groups and aggregates, updated with the records of topics.

The topics themselves are in server/topics/view_topic.py.

aggregates    the accumulators of the aggregate functions
exact         sums without rounding drift; extremes: minimum and maximum
projection    the inputs of a projection, and the fields that it computes for a group
grouping      groups of rows: rows enter, change and leave
sources       the rows of a single topic; join: those of several
definition    a configured view, compiled; terms: a client's own aggregation
"""
