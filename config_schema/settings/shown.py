"""Values as the author of a configuration would write them."""

from collections.abc import Mapping
from typing import Final

from config_schema.schema import elements
from config_schema.units import INTERVAL_UNITS, SIZE_UNITS

NOTHING: Final = "not set"

_SIZES: Final = {unit.upper(): SIZE_UNITS[unit] for unit in ("tb", "gb", "mb", "kb")} | {"": 1}
_INTERVALS: Final = dict(sorted(INTERVAL_UNITS.items(), key=lambda pair: -pair[1]))


def shown_value(path: str, value: object) -> str:
    """Write the value of a setting that nobody has written.

    Args:
        path: the canonical path of its element, whose documentation has words for what is absent,
            and whose type says what a number counts.
        value: as the description has it: sizes in bytes, intervals in nanoseconds.
    """
    doc = elements().get(path)
    if value is None or (doc is not None and doc.default is not None and _is_plain(value)):
        return (doc.default if doc else None) or NOTHING
    return in_words(path, value)


def in_words(path: str, value: object) -> str:
    """Write one value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(in_words(path, one) for one in value)
    if isinstance(value, int):
        doc = elements().get(path)
        return _number(doc.type_name if doc else "", value)
    return str(value)


def _is_plain(value: object) -> bool:
    """Whether the words of the documentation say as much; names that are derived say more."""
    return isinstance(value, bool | int)


def _number(type_name: str, value: int) -> str:
    match type_name:
        case "size":
            return _with_unit(value, _SIZES)
        case "interval" | "expiration":
            return _with_unit(value, _INTERVALS)
        case "percent":
            return f"{value}%"
        case "fileMask":
            return f"{value:04o}"
    return str(value)


def _with_unit(value: int, units: Mapping[str, int]) -> str:
    """Write a quantity in the largest unit that it is a whole number of."""
    fitting = (unit for unit, factor in units.items() if value and value % factor == 0)
    unit = next(fitting, "")
    return f"{value // units[unit]}{unit}" if unit else str(value)
