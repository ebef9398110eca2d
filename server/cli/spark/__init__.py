"""`spark`: ping, publish, subscribe and query from the command line.

The commands, options and output lines are those of the AMPS User Guide, Command-Line Basic
Client. `options` is the table of them, `help` prints it, `run` does it.
"""

from server.cli.spark.main import main

__all__ = ["main"]
