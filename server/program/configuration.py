"""A configuration that has been read: what it says, what it means, and what is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from config_schema.compile import compile_config
from config_schema.document import Document, Node, load
from config_schema.problems import Problems
from config_schema.settings import Entry, entries_of
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from server.assembly.catalogue import ProgramCatalogue


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration as far as it could be read.

    Attributes:
        path: its file, as it was given.
        problems: what was found.
        document: its text; None if that could not be read.
        root: its tree in canonical names; None without the document.
        spec: what it means; None if it cannot be used.
    """

    path: str
    problems: Problems
    document: Document | None = None
    root: Node | None = None
    spec: InstanceSpec | None = None

    @property
    def secrets(self) -> frozenset[str]:
        """The values of variables in it that nobody is to see."""
        return frozenset() if self.document is None else self.document.secrets

    @property
    def settings(self) -> Entry | None:
        """Every setting with the value that counts; None if it cannot be used."""
        if self.spec is None or self.root is None:
            return None
        return entries_of(self.spec, self.root, ProgramCatalogue())


def read_configuration(path: str, defines: Mapping[str, str]) -> Configuration:
    """Read a configuration.

    Args:
        path: its file.
        defines: variables given on the command line.
    """
    problems = Problems()
    document = load(path, defines=defines, environ=os.environ, problems=problems)
    if document is None:
        return Configuration(path, problems)
    root = validate(document, problems)
    spec = compile_config(root, ProgramCatalogue(), problems)
    return Configuration(path, problems, document, root, spec)
