"""The server's topics as tables: their columns, and scans of their records.

columns.py    the columns of a topic, learned from its records
scan.py       reads records of several topics, as of one moment, in time slices
catalogue.py  the tables that a session's user may see
"""
