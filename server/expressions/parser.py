"""The parser: one method per rule of `grammar`, binary operators by binding power."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Literal as OneOf
from typing import NamedTuple

from server.expressions.context_rules import ContextKind, check_tree
from server.expressions.errors import ExpressionError
from server.expressions.functions.builtin import BUILTINS
from server.expressions.functions.registry import AGGREGATES, Functions, Parameter
from server.expressions.grammar import (
    AND,
    ARITHMETIC,
    COMPARISONS,
    MAX_DEPTH,
    NOT,
    OR,
    POSTFIX,
    SUM,
    WORDS,
)
from server.expressions.numerals import bounded
from server.expressions.regex.patterns import compile_pattern
from server.expressions.token_cursor import TokenCursor
from server.expressions.tokens import ListToken, PathToken, StringToken, Token
from server.expressions.tree import (
    Affix,
    Aggregate,
    And,
    Arithmetic,
    Between,
    Call,
    Comparison,
    Expr,
    Field,
    Identifier,
    In,
    IsNan,
    IsNull,
    Join,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    OrderTerm,
    Pattern,
    height,
)
from server.message_types.paths import Path


class SizeLimits(NamedTuple):
    """Size limits of an expression.

    Attributes:
        max_nodes: maximum number of operators, fields and functions.
        max_literals: maximum number of numbers and texts.
    """

    max_nodes: int
    max_literals: int


def parse(
    text: str,
    kind: ContextKind = ContextKind.FILTER,
    functions: Functions = BUILTINS,
    limits: SizeLimits | None = None,
) -> Expr:
    """Parse an expression: a filter, a condition, a value.

    Args:
        text: the expression.
        kind: the place of the expression, which decides on its allowed contents.
        functions: the functions that may be called.
        limits: size limits; None for any size.

    Returns:
        The tree.

    Raises:
        ExpressionError: the text is no expression, contains a node that the kind does not allow, or
            is too large.
    """
    parser = _Parser(text, kind, functions, limits)
    return parser.parse_whole(parser.expression)


def parse_field(text: str, kind: ContextKind, functions: Functions = BUILTINS) -> Field:
    """Parse a constructed field, `source AS destination HINT ...`.

    A field that is copied under its own name needs no AS (AMPS User Guide, Constructing Fields).

    Raises:
        ExpressionError: the text is no field, or contains a node that the kind does not allow.
    """
    parser = _Parser(text, kind, functions)
    return parser.parse_whole(parser.field)


def parse_fields(
    text: str, kind: ContextKind, functions: Functions = BUILTINS
) -> tuple[Field, ...]:
    """Parse constructed fields separated by commas, the form of the `projection` option.

    Raises:
        ExpressionError: as for `parse_field`.
    """
    parser = _Parser(text, kind, functions)
    return parser.parse_whole(lambda: parser.parse_separated(parser.field))


def parse_identifier(text: str, kind: ContextKind = ContextKind.PATH) -> Identifier:
    """Parse one identifier, the form of keys, indexes and groupings.

    Raises:
        ExpressionError: the text is anything else.
    """
    parser = _Parser(text, kind, BUILTINS)
    return parser.parse_whole(parser.identifier)


def parse_identifiers(text: str) -> tuple[Identifier, ...]:
    """Parse identifiers separated by commas, the form of the `grouping` option.

    Raises:
        ExpressionError: the text is anything else.
    """
    parser = _Parser(text, ContextKind.GROUPING, BUILTINS)
    return parser.parse_whole(lambda: parser.parse_separated(parser.identifier))


def parse_order_by(text: str) -> tuple[OrderTerm, ...]:
    """Parse an OrderBy: identifiers, each with ASC or DESC.

    Raises:
        ExpressionError: the text is anything else.
    """
    parser = _Parser(text, ContextKind.ORDER_BY, BUILTINS)
    return parser.parse_whole(lambda: parser.parse_separated(parser.order_term))


def parse_join(text: str) -> Join:
    """Parse a join definition, `[topic].[/field]=[topic].[/field]`.

    Message types may come first; topics may be written without brackets.

    Raises:
        ExpressionError: the text is anything else.
    """
    parser = _Parser(text, ContextKind.JOIN, BUILTINS)
    return parser.parse_whole(parser.join)


class _Parser(TokenCursor):
    """Parses one text. `expression` and its parts consume tokens from left to right."""

    def __init__(
        self, text: str, kind: ContextKind, functions: Functions, limits: SizeLimits | None = None
    ) -> None:
        super().__init__(text)
        self._node_count = self._literal_count = 0
        self._limits = limits
        self._kind = kind
        self._functions = functions

    # ---- start symbols

    def expression(self) -> Expr:
        expr = self._binary(0)
        if height(expr) > MAX_DEPTH:
            raise ExpressionError(f"nested deeper than {MAX_DEPTH}", expr.position, self._text)
        check_tree(expr, self._kind, self._functions, self._text)
        return expr

    def field(self) -> Field:
        source = self.expression()
        if self._accept_word("AS"):
            destination = self._destination()
        elif isinstance(source, Identifier):
            destination = source.path
        else:
            raise self._unexpected_error("AS and the field that gets the value")
        hints: set[str] = set()
        if self._accept_word("HINT"):
            hints.add(self._hint())
            while self._has_another_hint():
                self._advance()
                hints.add(self._hint())
        return Field(source, destination, "OPTIONAL" in hints, "SET_CURRENT" in hints)

    def identifier(self) -> Identifier:
        if self._token.kind != "identifier":
            raise self._unexpected_error("a field such as /name")
        identifier = self._identifier(self._advance())
        check_tree(identifier, self._kind, self._functions, self._text)
        return identifier

    def order_term(self) -> OrderTerm:
        identifier = self.identifier()
        descending = self._accept_word("DESC")
        if not descending:
            self._accept_word("ASC")
        return OrderTerm(identifier, descending)

    def join(self) -> Join:
        left = self._join_side()
        if not self._accept_symbol("="):
            raise self._unexpected_error("= between the two fields")
        return Join(left, self._join_side())

    # ---- binary operators

    def _binary(self, power: int) -> Expr:
        """Parse an operand and all the operators after it that bind tighter than `power`."""
        self._increase_depth()
        left = self._prefix()
        while (binding := self._binding()) > power:
            left = self._infix(left, binding)
        self._depth -= 1
        return left

    def _prefix(self) -> Expr:
        token = self._token
        if self._accept_word("NOT"):
            return Not(self._binary(NOT), position=token.position)
        return self._unary()

    def _binding(self) -> int:
        """Return the binding power of the current token; 0 if it is no operator."""
        kind, text = self._token.kind, self._token.text
        if kind not in ("word", "symbol"):
            return 0
        if text in ("OR", "||"):
            return OR
        if text in ("AND", "&&"):
            return AND
        if text in ("BETWEEN", "IN", "LIKE", "BEGINS", "ENDS", "IS", "NOT"):
            return POSTFIX
        for table in (COMPARISONS, ARITHMETIC):
            if text in table:
                return table[text][1]
        return 0

    def _count_node(self) -> None:
        """Count an operator, a field or a function."""
        self._node_count += 1
        if self._limits is not None and self._node_count > self._limits.max_nodes:
            raise self._too_many_error(self._limits.max_nodes, "operators, fields and functions")

    def _count_literals(self, count: int) -> None:
        """Count numbers and texts."""
        self._literal_count += count
        if self._limits is not None and self._literal_count > self._limits.max_literals:
            raise self._too_many_error(self._limits.max_literals, "numbers and texts")

    def _too_many_error(self, limit: int, items: str) -> ExpressionError:
        return ExpressionError(f"more than {limit} {items}", self._token.position, self._text)

    def _infix(self, left: Expr, binding: int) -> Expr:
        self._count_node()
        if binding in (OR, AND):
            return self._chain(left, binding)
        if binding == POSTFIX:
            return self._postfix(left)
        token = self._advance()
        right = self._binary(binding)
        if token.text in COMPARISONS:
            operator = COMPARISONS[token.text][0]
            return Comparison(operator, left, right, position=left.position)
        return Arithmetic(ARITHMETIC[token.text][0], left, right, position=left.position)

    def _chain(self, left: Expr, binding: int) -> Expr:
        """Parse a chain of AND, or of OR, after `left`; nested chains of one kind become one."""
        node = And if binding == AND else Or
        operands: list[Expr] = []
        self._extend(operands, left, node)
        while self._binding() == binding:
            self._count_node()
            self._advance()
            self._extend(operands, self._binary(binding), node)
        return node(tuple(operands), position=left.position)

    @staticmethod
    def _extend(operands: list[Expr], operand: Expr, node: type[And | Or]) -> None:
        operands.extend(operand.operands if isinstance(operand, node) else (operand,))

    def _postfix(self, left: Expr) -> Expr:
        """Parse an operator that is a word; most of them can be negated."""
        negated = self._accept_word("NOT")
        position = left.position
        test: Expr
        if self._accept_word("BETWEEN"):
            low = self._binary(SUM - 1)
            self._expect_word("AND", "AND between the bounds of BETWEEN")
            test = Between(left, low, self._binary(SUM - 1), position=position)
        elif self._accept_word("IN"):
            test = In(left, self._list(), position=position)
        elif self._accept_word("LIKE"):
            test = Like(left, self._pattern("the pattern of LIKE"), position=position)
        elif self._accept_word("BEGINS"):
            test = self._affix("BEGINS WITH", left)
        elif self._accept_word("ENDS"):
            test = self._affix("ENDS WITH", left)
        elif negated and self._accept_word("NULL"):
            test = IsNull(left, position=position)
        elif not negated and self._accept_word("IS"):
            negated = self._accept_word("NOT")
            test = self._null_or_nan(left)
        else:
            raise self._unexpected_error(
                "BETWEEN, IN, LIKE, BEGINS WITH, ENDS WITH or NULL after NOT"
            )
        return Not(test, position=position) if negated else test

    def _affix(self, operator: OneOf["BEGINS WITH", "ENDS WITH"], left: Expr) -> Expr:
        self._expect_word("WITH", f"WITH after {operator.split()[0]}")
        return Affix(operator, left, self._list(), position=left.position)

    def _null_or_nan(self, left: Expr) -> Expr:
        if self._accept_word("NULL"):
            return IsNull(left, position=left.position)
        if self._accept_word("NAN"):
            return IsNan(left, position=left.position)
        raise self._unexpected_error("NULL or NAN after IS")

    # ---- operands

    def _unary(self) -> Expr:
        token = self._token
        if self._accept_symbol("-"):
            return self._negate(self._nested(self._unary), token.position)
        if self._accept_symbol("+"):
            return self._nested(self._unary)
        return self._primary()

    @staticmethod
    def _negate(operand: Expr, position: int) -> Expr:
        if isinstance(operand, Literal) and isinstance(operand.value, int | float):
            value = operand.value
            negative = bounded(-value) if isinstance(value, int) else -value
            return Literal(negative, position=position)
        return Negate(operand, position=position)

    def _primary(self) -> Expr:
        token = self._token
        if token.kind == "identifier":
            return self._identifier(self._advance())
        if isinstance(token.value, int | float):
            self._count_literals(1)
            self._advance()
            return Literal(token.value, position=token.position)
        if isinstance(token.value, StringToken):
            self._count_literals(1)
            self._advance()
            return Literal(token.value.value, position=token.position)
        if self._accept_symbol("("):
            expr = self._binary(0)
            self._expect_symbol(")", 'an operator or ")"')
            return expr
        if self._accept_word("NULL"):
            return Literal(None, position=token.position)
        if token.text == "/" and self._at_double_slash():
            self._advance()
            return self._identifier(self._advance())
        if token.kind == "word" and token.text not in WORDS:
            return self._call(self._advance())
        raise self._unexpected_error("a value")

    def _identifier(self, token: Token) -> Identifier:
        self._count_node()
        name = token.value
        if not isinstance(name, PathToken):
            raise self._unexpected_error("a field such as /name")
        state: OneOf["current", "previous"] | None = None
        if self._accept_word("OF"):
            if self._accept_word("CURRENT"):
                state = "current"
            elif self._accept_word("PREVIOUS"):
                state = "previous"
            else:
                raise self._unexpected_error("CURRENT or PREVIOUS after OF")
        return Identifier(name.path, name.message_type, name.topic, state, position=token.position)

    def _at_double_slash(self) -> bool:
        """Return whether the current slash begins `//name`: `/name` at the beginning of a value."""
        following = self._tokens[self._index + 1]
        beside = following.position == self._token.position + 1
        return beside and following.kind == "identifier" and following.text.startswith("/")

    def _list(self) -> tuple[Expr, ...]:
        token = self._token
        if isinstance(token.value, ListToken):
            self._count_literals(len(token.value.items))
            self._advance()
            return tuple([Literal(value, position=at) for value, at in token.value.items])
        self._expect_symbol("(", "a list in parentheses")
        items = self.parse_separated(lambda: self._binary(0))
        self._expect_symbol(")", 'a comma or ")"')
        return items

    def _pattern(self, expected: str) -> Pattern:
        token = self._token
        if not isinstance(token.value, StringToken):
            raise self._unexpected_error(f"a quoted text, {expected}")
        self._advance()
        pattern = Pattern(token.value.pattern, token.value.raw, position=token.position)
        compile_pattern(pattern, self._text)
        return pattern

    def _call(self, name: Token) -> Expr:
        self._count_node()
        if self._token.text != "(":
            raise self._not_a_function_error(name)
        if name.text in AGGREGATES:
            arguments = self._arguments(lambda _: self._binary(0))
            self._check_arity(name, *AGGREGATES[name.text].arity, len(arguments))
            return Aggregate(name.text, arguments, position=name.position)
        function = self._functions.get(name.text)
        if function is None:
            raise self._unknown_function_error(name)
        arguments = self._arguments(
            lambda index: (
                self._pattern(f"the pattern of {function.name}")
                if function.parameter(index) is Parameter.PATTERN
                else self._binary(0)
            )
        )
        self._check_arity(name, function.minimum, function.maximum, len(arguments))
        return Call(function.name, arguments, position=name.position)

    def _arguments(self, rule: Callable[[int], Expr]) -> tuple[Expr, ...]:
        self._expect_symbol("(", '"("')
        if self._accept_symbol(")"):
            return ()
        arguments = [rule(0)]
        while self._accept_symbol(","):
            arguments.append(rule(len(arguments)))
        self._expect_symbol(")", 'a comma or ")"')
        return tuple(arguments)

    def _check_arity(self, name: Token, minimum: int, maximum: int | None, count: int) -> None:
        if minimum <= count and (maximum is None or count <= maximum):
            return
        if maximum is None:
            expected = f"at least {minimum}"
        elif minimum == maximum:
            expected = str(minimum) if minimum else "no"
        else:
            expected = f"{minimum} to {maximum}"
        plural = "" if expected in ("1", "at least 1") else "s"
        raise ExpressionError(
            f"{name.text} takes {expected} argument{plural}, {count} given",
            name.position,
            self._text,
        )

    # ---- fields and joins

    def _destination(self) -> Path:
        token = self._token
        if not isinstance(token.value, PathToken):
            raise self._unexpected_error("a field such as /name after AS")
        if token.value.topic is not None:
            raise ExpressionError(
                "the field after AS belongs to the message that is made: write it without [topic]",
                token.position,
                self._text,
            )
        self._advance()
        if self._token.text == "OF":
            raise ExpressionError(
                "OF CURRENT and OF PREVIOUS belong before AS", self._token.position, self._text
            )
        return token.value.path

    def _hint(self) -> str:
        for hint in ("OPTIONAL", "SET_CURRENT"):
            if self._accept_word(hint):
                return hint
        raise self._unexpected_error("OPTIONAL or SET_CURRENT after HINT")

    def _has_another_hint(self) -> bool:
        """Return whether a hint follows the current comma, rather than the next field of a list."""
        if self._token.text != ",":
            return False
        following = self._tokens[self._index + 1 : self._index + 3]
        return following[0].text in ("OPTIONAL", "SET_CURRENT") and following[1].text != "("

    def _join_side(self) -> Identifier:
        token = self._token
        if token.kind == "word":
            return self._bare_topic_identifier()
        if not isinstance(token.value, PathToken):
            raise self._unexpected_error("a field such as [topic].[/name]")
        if token.value.topic is None:
            raise ExpressionError(
                "a join needs the topic of each field: [topic].[/name]",
                token.position,
                self._text,
            )
        return self._identifier(self._advance())

    def _bare_topic_identifier(self) -> Identifier:
        """Parse `topic/name`: without brackets the first slash starts the field."""
        topic = self._advance()
        name = self._token.value
        end = topic.position + len(topic.text)
        if not isinstance(name, PathToken) or name.topic or self._token.position != end:
            raise self._unexpected_error("a field right after the topic, topic/name")
        self._advance()
        spelled = self._text[topic.position : end]
        return Identifier(name.path, None, spelled, position=topic.position)

    # ---- errors about names

    def _not_a_function_error(self, name: Token) -> ExpressionError:
        spelled = self._text[name.position : name.position + len(name.text)]
        hint = f"for a field write /{spelled}, for a text '{spelled}'"
        if name.text in ("TRUE", "FALSE"):
            hint = f"write {name.text}_VALUE() or {int(name.text == 'TRUE')}"
        return ExpressionError(
            f"expected a value, found the word {spelled}: {hint}", name.position, self._text
        )

    def _unknown_function_error(self, name: Token) -> ExpressionError:
        if module := self._functions.absent.get(name.text):
            return ExpressionError(
                f"{name.text} is a function of the module {module}, which is not loaded",
                name.position,
                self._text,
            )
        near = get_close_matches(name.text, [*self._functions, *AGGREGATES], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return ExpressionError(f"there is no function {name.text}{hint}", name.position, self._text)
