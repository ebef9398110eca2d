"""Views: topics whose records are computed from those of other topics, and kept right with them.

aggregates    what each aggregate function keeps of a group's values
exact         sums that do not drift; extremes: the least and the greatest
projection    what a projection reads of every message, and makes of a group of them
grouping      groups of rows: what comes, changes and goes
"""
