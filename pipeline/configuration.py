"""Configurations of instances, read in the same way as by the server."""

from __future__ import annotations

import os

from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems, Severity
from config_schema.spec import InstanceSpec
from config_schema.validate import validate
from pipeline.errors import PipelineError
from server.app.wiring.catalogue import ProgramCatalogue


def read_configuration(path: str) -> InstanceSpec:
    """Read and check the configuration of an instance.

    Args:
        path: the file.

    Raises:
        PipelineError: it cannot be used; the text has all problems, each with its file and line.
    """
    problems = Problems()
    document = load(path, defines={}, environ=os.environ, problems=problems)
    spec = None
    if document is not None:
        spec = compile_config(validate(document, problems), ProgramCatalogue(), problems)
    if spec is None or problems.has_errors:
        errors = [str(problem) for problem in problems if problem.severity is Severity.ERROR]
        raise PipelineError("\n".join([f"{path}: invalid configuration:", *errors]))
    return spec
