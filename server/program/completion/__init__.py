"""Scripts that complete command lines in shells.

`lines.py` says what a command line takes; `argparse_line.py` finds that out about a parser. A
module per shell makes a script of it, which asks nobody when it runs: starting Python for each tab
would keep people waiting. `scripts.py` has the table of shells, and writes the files of
`completions/`.
"""
