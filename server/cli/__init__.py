"""The command-line tools that ship with the server."""
