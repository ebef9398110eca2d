"""The instance: transports, commands, topics and everything that a running server needs."""

from pathlib import Path

from amperage.forms import choose

choose(Path(__file__).parent)
