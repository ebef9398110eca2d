"""The instance: transports, commands, topics and everything that a running server needs."""

import amperage  # noqa: F401 - decides which form of the message path is run
