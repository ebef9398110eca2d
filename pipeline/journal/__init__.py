"""`format("amps-journal")`: journals as DataFrames, read in parallel and without a server.

Theory of operation. Planning (plan, log, tail) takes a snapshot of the directory: the files, and
the current end of the last one. A query's bookmark, its topic and the predicates that Spark pushes
down (predicates) exclude files by their seals and indexes. The other files are cut into partitions,
one for each task. A compressed file is one partition, since it can only be read as a whole.

A task (blocks) reads the records of its partition, 4,096 at a time, as NumPy columns; predicates on
metadata are tests on these. Then it reads the bodies of the remaining entries, in blocks. Bodies
are contiguous, so a block as it was read, with an array of offsets, is already an Arrow column
(columns). Files are read, not mapped: truncating a mapped file kills the process. One call verifies
all checksums of a block (blocks), and no data is used before that. If fields of the messages are
selected, msgspec decodes just these (fields), and predicates on them are tested before other
columns are built.
"""
