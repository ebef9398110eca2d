"""`format("amps")`: topics of a running server, read and written.

source.py       the format: what it can do, and the schema it has without being told
options.py      its options, read and checked
connection.py   the way to the server; refusals, told by the option that is to blame
batch.py        a query of a SOW topic        stream.py   a replay from the transaction log
writer.py       publishing and deleting, each row once
"""
