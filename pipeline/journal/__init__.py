"""`format("amps-journal")`: journals as DataFrames, read in parallel and without a server.

Theory of operation. Planning (planning, log, tail) takes a snapshot of the directory: the files,
and where the last one ends by now. A query's bookmark, its topic and the predicates that Spark
pushes down (predicates) drop files by what their seals and indexes say, and what is left is cut
into pieces, one for each task. A compressed file is one piece, since it can only be read as a
whole.

A task (blocks) reads the records of its piece, 4,096 at a time, as NumPy columns; predicates on
metadata are tests on these. Then it reads the bodies of what is left, in blocks: they lie back to
back, so a block as it was read, with an array of offsets, already is an Arrow column (columns).
Files are read, not mapped: a file that is cut off under a mapping kills the process. Each block is
checked by one call (checksums), for nothing is believed before its checksum is. If fields of the
messages are asked for, msgspec decodes just these (fields), and predicates on them are asked before
anything else is made of a message.
"""
