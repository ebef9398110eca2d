"""Reads a configuration: its document, its specification, and the problems found in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from config_schema.compile import compile_config
from config_schema.document import ConfigDocument, ConfigNode, load
from config_schema.problems import Problems
from config_schema.settings import SettingsEntry, entries_of
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration as far as it could be read.

    Attributes:
        path: the path of its file, as it was given.
        problems: the problems found.
        document: its text; None if that could not be read.
        root: its tree in canonical names; None without the document.
        spec: its specification; None if it cannot be used.
    """

    path: str
    problems: Problems
    document: ConfigDocument | None = None
    root: ConfigNode | None = None
    spec: InstanceSpec | None = None

    @property
    def secrets(self) -> frozenset[str]:
        """The values of its secret variables, to be redacted."""
        return frozenset() if self.document is None else self.document.secrets

    @property
    def settings(self) -> SettingsEntry | None:
        """Every setting with its effective value; None if the configuration cannot be used."""
        if self.spec is None or self.root is None:
            return None
        return entries_of(self.spec, self.root, ProgramCatalogue())


def read_configuration(path: str, defines: Mapping[str, str]) -> Configuration:
    """Read a configuration, as far as that is possible.

    Args:
        path: the path of its file.
        defines: variables given on the command line.
    """
    problems = Problems()
    document = load(path, defines=defines, environ=os.environ, problems=problems)
    if document is None:
        return Configuration(path, problems)
    root = validate(document, problems)
    spec = compile_config(root, ProgramCatalogue(), problems)
    return Configuration(path, problems, document, root, spec)
