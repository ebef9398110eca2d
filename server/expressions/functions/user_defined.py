"""User-defined functions: symbols of Python modules that a configuration names.

Source: AMPS Configuration Guide, UserDefinedFunctions. A shared object in AMPS is a Python module
here. A function takes its arguments as values (NULL is None, an array its first element) and
returns one; with an attribute `deterministic` that is false it counts as non-deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Final, TypeAlias, TypeGuard

from server.expressions.functions.registry import AGGREGATES, Function, Parameter
from server.expressions.grammar import WORDS
from server.expressions.tokens import is_word
from server.message_types.base import Value

FailureCallback: TypeAlias = Callable[[str, str], None]
"""Receives the name of a function that failed, and the reason. Must not raise."""


class UserFunctionError(ValueError):
    """A declared function cannot be loaded; the message states the reason."""


def load_function(
    name: str,
    module: ModuleType,
    symbol: str,
    parameter_count: int | None,
    on_failure: FailureCallback,
) -> Function:
    """Make a function of the language from a function of a module.

    Args:
        name: its name in expressions, in any case.
        module: the loaded module.
        symbol: the function's name in the module.
        parameter_count: the number of arguments, None for any number.
        on_failure: called when a call fails or returns no value; the result then is NULL.

    Raises:
        UserFunctionError: there is no such function, or the name is not allowed.
    """
    spelled = name.upper()
    if not is_word(spelled) or spelled in WORDS or spelled in AGGREGATES:
        raise UserFunctionError(
            f"{name} cannot be the name of a function: expected letters, digits and _, and no word "
            "of the expression language"
        )
    target = getattr(module, symbol, None)
    if not callable(target):
        raise UserFunctionError(f"the module {module.__name__} has no function {symbol}")
    fixed = () if parameter_count is None else (Parameter.ANY,) * parameter_count
    return Function(
        spelled,
        "User-defined functions",
        f"{symbol} of the module {module.__name__}.",
        _guarded(spelled, target, on_failure),
        fixed,
        variadic=Parameter.ANY if parameter_count is None else None,
        is_deterministic=bool(getattr(target, "deterministic", True)),
    )


def _guarded(
    name: str, target: Callable[..., object], on_failure: FailureCallback
) -> Callable[..., Value]:
    """Return a wrapper that always returns a value: foreign code must not stop the message path."""

    def call(*arguments: Value) -> Value:
        try:
            result = target(*arguments)
        except Exception as error:  # user code may raise anything
            on_failure(name, f"{type(error).__name__}: {error}")
            return None
        if _is_value(result):
            return result
        on_failure(name, f"gave a {type(result).__name__} instead of a value")
        return None

    return call


_SCALARS: Final = (type(None), bool, int, float, str)


def _is_value(result: object) -> TypeGuard[Value]:
    return isinstance(result, _SCALARS)
