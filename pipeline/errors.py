"""What goes wrong in the pipeline, told by the option that is to blame."""

from __future__ import annotations


class PipelineError(Exception):
    """A read or a write that cannot be done; the text says which option is to blame, and why."""


def option_error(option: str, value: object, problem: str) -> PipelineError:
    """Make the error for an option.

    Args:
        option: its name.
        value: what it was given.
        problem: what is wrong with that.
    """
    return PipelineError(f"option {option}={str(value)!r}: {problem}")
