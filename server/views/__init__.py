"""What views compute from the records of topics, and keep right with them.

The topics themselves are server/topics/view.py.

aggregates    what each aggregate function keeps of a group's values
exact         sums that do not drift; extremes: the least and the greatest
projection    what a projection reads of every message, and makes of a group of them
grouping      groups of rows: what comes, changes and goes
sources       the rows of a single topic; join: those of several
definition    a configured view, compiled; terms: what a client asks to be aggregated
"""
