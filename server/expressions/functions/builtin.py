"""The functions of an instance: those that need no module."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import Final

from server.expressions.functions import arrays, checksums, messages, numbers, texts, times
from server.expressions.functions.lookups import EXPERIMENTAL_MODULE, VALUE_LOOKUP
from server.expressions.functions.registry import Function, Functions, Parameter
from server.expressions.functions.times import LEGACY_MODULE, TimestampClock


def built_in(
    clock: TimestampClock = time.time,
    instance_name: str | None = None,
    group_name: str | None = None,
) -> Functions:
    """Return the functions that need no module.

    Args:
        clock: returns the current time in seconds since 1970.
        instance_name: the result of AMPS_INSTANCE_NAME.
        group_name: the result of AMPS_GROUP_NAME.
    """
    functions = (
        *texts.FUNCTIONS,
        *numbers.FUNCTIONS,
        *arrays.FUNCTIONS,
        *checksums.FUNCTIONS,
        *times.built_in(clock),
        *messages.FUNCTIONS,
        Function(
            "COALESCE",
            "Conditions",
            "The first argument that is not NULL.",
            lambda *values: next((value for value in values if value is not None), None),
            variadic=Parameter.ANY,
        ),
        Function(
            "IF",
            "Conditions",
            "The second argument if the first is true, else the third.",
            lambda condition, then, otherwise: then if condition else otherwise,
            (Parameter.ANY, Parameter.ANY, Parameter.ANY),
        ),
        Function(
            "AMPS_INSTANCE_NAME",
            "The instance",
            "The name of this instance.",
            lambda: instance_name,
        ),
        Function(
            "AMPS_GROUP_NAME",
            "The instance",
            "The replication group of this instance.",
            lambda: group_name,
        ),
    )
    absent = {function.name: LEGACY_MODULE for function in times.legacy(clock)}
    absent[VALUE_LOOKUP] = EXPERIMENTAL_MODULE
    return Functions(MappingProxyType({})).with_functions(functions).with_absent(absent)


BUILTINS: Final = built_in()
"""The functions of an instance without a name."""
