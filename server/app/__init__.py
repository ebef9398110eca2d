"""The tasks of the command ampServer: check a configuration, show it, run it."""
