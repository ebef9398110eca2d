"""The values of elements as editors check them: words to choose from, and patterns."""

import re
from dataclasses import dataclass
from typing import Final

from xmlschema.validators import XsdSimpleType, XsdUnion

from config_schema.schema import ElementDoc, elements, load_schema

VARIABLE: Final = r"[\s\S]*\$\{[^{}]+\}[\s\S]*"
"""A text that names a variable, legal for any value. In the notation of XSD, as all patterns."""

_LIST: Final = "separated by"
_ANYTHING: Final = r"[\s\S]*"


@dataclass(frozen=True, slots=True)
class ValueType:
    """The values of a simple type.

    Attributes:
        name: the name of the type.
        documentation: its meaning, in words.
        words: the words for completion.
        patterns: patterns, one of which has to match, in the notation of XSD; they cover the words.
    """

    name: str
    documentation: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]


def value_types() -> list[ValueType]:
    """List the types that elements have, each once, in the order of the schema."""
    docs_by_type: dict[str, ElementDoc] = {}
    for doc in elements().values():
        if doc.type_name:
            docs_by_type.setdefault(doc.type_name, doc)
    return [_value_type(name, doc) for name, doc in docs_by_type.items()]


def _value_type(name: str, doc: ElementDoc) -> ValueType:
    declared = load_schema().types[name]
    if not isinstance(declared, XsdSimpleType):
        raise TypeError(f"{name} is the type of a text")
    patterns = list(_patterns(declared))
    if doc.values:
        any_word = "|".join(map(_any_case, doc.values))
        between = r"\s*[,\s]\s*"
        patterns.append(
            f"({any_word})({between}({any_word}))*" if _LIST in doc.expected else any_word
        )
    elif not patterns:
        patterns = [r"[\s\S]*\S[\s\S]*" if _must_not_be_empty(declared) else _ANYTHING]
    words = doc.values if _LIST not in doc.expected else ()
    return ValueType(name, doc.expected, words, tuple(patterns))


def _patterns(declared: XsdSimpleType) -> list[str]:
    if isinstance(declared, XsdUnion):
        return [pattern for member in declared.member_types for pattern in _patterns(member)]
    if declared.patterns is not None:
        return list(declared.patterns.regexps)
    return []


def _must_not_be_empty(declared: XsdSimpleType) -> bool:
    return bool(declared.min_length)


def _any_case(word: str) -> str:
    """Return a pattern for a word in upper or lower case."""
    return "".join(
        f"[{letter.lower()}{letter.upper()}]" if letter.isalpha() else re.escape(letter)
        for letter in word
    )
