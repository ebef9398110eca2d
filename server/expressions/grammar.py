r"""The grammar, and the tables that the parser and the printer share.

    expression   = or
    or           = and { ("OR" | "||") and }
    and          = not { ("AND" | "&&") not }
    not          = "NOT" not | comparison
    comparison   = sum { operator sum
                       | ["NOT"] "BETWEEN" sum "AND" sum
                       | ["NOT"] "IN" list
                       | ["NOT"] "LIKE" string
                       | ["NOT"] ("BEGINS" | "ENDS") "WITH" list
                       | "IS" ["NOT"] ("NULL" | "NAN")
                       | "NOT" "NULL" }
    operator     = "!=" | "<>" | "<=" | "<" | ">=" | ">" | "=" | "=="
                   each binds tighter than the one before; != is <>, = is ==
    sum          = product { ("+" | "-") product }
    product      = unary { ("*" | "/" | "%" | "MOD") unary }
    unary        = ("-" | "+") unary | primary
    primary      = number | string | "NULL" | [ "/" ] identifier | call | "(" expression ")"
                   the slash only right before another one: //name is /name
    call         = name "(" [ expression { "," expression } ] ")"
    list         = "(" expression { "," expression } ")"

    identifier   = ( path | qualifier path | qualifier "[" any name "]" [ path ] ) [ state ]
                   the third form is that of AMPS 5.2
    state        = "OF" ("CURRENT" | "PREVIOUS")
    qualifier    = [ "[" message type "]" "." ] "[" topic "]" "."
    path         = step { step | "[" digits "]" }
    step         = "/" ["@"] name | "[" { "/" any name } "]"
                   a name starts with a letter, a digit or _, and goes on with those and - . :
                   any name has no / [ ]
    number       = digits [ "." [ digits ] ] [ exponent ] | "." digits [ exponent ]
    string       = '...' | "..." | r'...' | r"..."
                   with \a \b \t \n \f \r \xHH \OOO, and \ before any other character for that
                   character; raw strings (r) have no escapes

    fields       = field { "," field }
    field        = expression [ "AS" path [ "HINT" hint { "," hint } ] ]
    hint         = "OPTIONAL" | "SET_CURRENT"
    order        = term { "," term }
    term         = identifier [ "ASC" | "DESC" ]
    identifiers  = identifier { "," identifier }
    join         = side "=" side
    side         = identifier | topic path

Words are read in any case. A slash followed by a name starts a path, so division needs white space
after it: `/a / /b` (AMPS User Guide, Arithmetic Operators). Behind a number, a string or a closing
parenthesis no path can start, and a slash divides: `SUM(/a)/SUM(/b)`. A pattern keeps its
backslashes for the regular expression engine: `/state LIKE '(.)\1'` is a back-reference (AMPS User
Guide, LIKE Operator and Regular Expressions).
"""

from __future__ import annotations

from typing import Final

MAX_LENGTH: Final = 1_000_000
"""Maximum length of a text, in characters."""

MAX_DEPTH: Final = 100
"""Maximum nesting depth of parentheses, calls and the tree itself."""

MAX_STEPS: Final = 128
"""Maximum number of names and subscripts of one path, as in paths of message types."""

OR, AND, NOT, POSTFIX, SUM, PRODUCT, UNARY, PRIMARY = 10, 20, 30, 50, 60, 70, 80, 90
"""Binding powers; comparison operators lie between NOT and POSTFIX."""

COMPARISONS: Final = {
    "!=": ("!=", 40),
    "<>": ("!=", 40),
    "<=": ("<=", 41),
    "<": ("<", 42),
    ">=": (">=", 43),
    ">": (">", 44),
    "=": ("=", 45),
    "==": ("=", 45),
}
"""Spelling -> operator, binding power (AMPS User Guide, Comparison Operators: the list is in
precedence order)."""

MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparison -> the equivalent one with its operands exchanged."""

ARITHMETIC: Final = {
    "+": ("+", SUM),
    "-": ("-", SUM),
    "*": ("*", PRODUCT),
    "/": ("/", PRODUCT),
    "%": ("%", PRODUCT),
    "MOD": ("%", PRODUCT),
}

WORDS: Final = frozenset(
    [
        "OR",
        "AND",
        "NOT",
        "BETWEEN",
        "IN",
        "LIKE",
        "BEGINS",
        "ENDS",
        "WITH",
        "IS",
        "NULL",
        "NAN",
        "MOD",
        "OF",
        "AS",
        "HINT",
    ]
)
"""Reserved words, which cannot be names of functions."""

SYMBOLS: Final = ("==", "!=", "<>", "<=", ">=", "&&", "||", *"=<>+-*/%(),.")
"""Longest first."""

ESCAPES: Final = {"a": 7, "b": 8, "t": 9, "n": 10, "f": 12, "r": 13}
r"""AMPS User Guide, String Literals in AMPS Expressions; the lexer reads \xHH and \OOO."""
