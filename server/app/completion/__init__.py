"""Scripts that complete command lines in shells.

`lines.py` describes the options and arguments of a command line; `argparse_line.py` derives that
description from a parser. A module per shell makes a self-contained script from it: starting Python
for each tab would be too slow. `scripts.py` has the table of shells, and the names of the files in
`completions/`.
"""
