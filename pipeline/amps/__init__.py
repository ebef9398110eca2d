"""`format("amps")`: topics of a running server, read and written.

source.py       the format: its capabilities, and its default schema
options.py      its options, read and checked
connection.py   connections to the server; errors that name the option at fault
batch.py        a query of a SOW topic        stream.py   a replay from the transaction log
writer.py       publishes and deletes, each row once
"""
