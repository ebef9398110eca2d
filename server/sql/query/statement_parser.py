"""The parser of statements: a text is split, and each statement is classified.

Queries are parsed by sqlglot. The statements about sessions, transactions and cursors, which
sqlglot does not know, are read from tokens here. Source: PostgreSQL documentation, SQL Commands.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from server.sql.query.errors import SqlError
from server.sql.query.statement import CopyFormat, Statement, StatementKind, copy_format
from server.sql.query.statement_refusals import refusal
from server.sql.query.token_reader import TokenReader
from server.sql.sqlstate import FEATURE_NOT_SUPPORTED, STATEMENT_TOO_COMPLEX, UNDEFINED_PARAMETER

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.tokenizer_core import Token

    from server.sql.query.live_terms import LiveTerms, TopicName

MAX_STATEMENTS: Final = 1000
_MAX_NAME_PARTS: Final = 2
"""Parts of the name of a topic: schema and name."""
MAX_PARAMETERS: Final = 65535
"""The number of parameters that the protocol can count."""


def parse(text: str) -> list[Statement]:
    """Return the statements of a text; none for an empty one.

    Raises:
        SqlError: the text is no SQL, or a statement is not supported.
    """
    from server.sql.query import dialect

    statements: list[Statement] = []
    tokens: list[Token] = []
    for token in [*dialect.tokenize(text), None]:
        if token is not None and not _is_mark(token, ";"):
            tokens.append(token)
            continue
        if tokens:
            statements.append(_StatementReader(tokens, text).read())
            tokens = []
        if len(statements) > MAX_STATEMENTS:
            raise SqlError(
                STATEMENT_TOO_COMPLEX, f"the text has more than {MAX_STATEMENTS} statements"
            )
    return statements


_WRITE_TAGS: Final = {"INSERT": "INSERT 0", "UPDATE": "UPDATE", "DELETE": "DELETE"}
"""The statements that write, and their tags."""


class _StatementReader(TokenReader):
    """Reads one statement."""

    def read(self) -> Statement:
        word = self._word()
        if word in ("SELECT", "WITH", "VALUES", "TABLE", "(", "FROM"):
            return self._query(StatementKind.SELECT, "SELECT")
        if word in _WRITE_TAGS:
            return self._write(word)
        read = self._STATEMENTS.get(word)
        if read is None:
            raise self._refusal(word)
        self._index += 1
        return read(self)

    # ---- writes

    def _write(self, word: str) -> Statement:
        from server.sql.query import dialect

        tree = dialect.parse_query(self._tokens, self._all)
        count = self._count_parameters(tree)
        return self._statement(
            StatementKind.WRITE,
            _WRITE_TAGS[word],
            tree=tree,
            parameter_count=count,
            has_returning=tree.args.get("returning") is not None,
        )

    # ---- queries

    def _query(self, kind: StatementKind, tag: str, **fields: object) -> Statement:
        """Read the rest as a query."""
        from server.sql.query import dialect

        if self._index >= len(self._tokens):
            raise dialect.syntax_error_at(None, self._all)
        if self._word() not in ("SELECT", "WITH", "VALUES", "TABLE", "(", "FROM"):
            raise self._refusal(self._word())
        tree = dialect.parse_query(self._tokens[self._index :], self._all)
        return self._with_tree(kind, tag, tree, **fields)

    def _with_tree(
        self, kind: StatementKind, tag: str, tree: exp.Expr, **fields: object
    ) -> Statement:
        from server.sql.query.read_only import check_read_only

        check_read_only(tree)
        count = self._count_parameters(tree)
        return self._statement(kind, tag, tree=tree, parameter_count=count, **fields)

    @staticmethod
    def _count_parameters(tree: exp.Expr) -> int:
        """Return the highest number of a parameter.

        Raises:
            SqlError: there can be no such parameter.
        """
        from server.sql.query.parameters import parameter_numbers

        numbers = parameter_numbers(tree)
        count = max(numbers, default=0)
        if count > MAX_PARAMETERS or 0 in numbers:
            raise SqlError(UNDEFINED_PARAMETER, f"there is no parameter ${count}")
        return count

    def _explain(self) -> Statement:
        options: set[str] = set()
        if self._accept("("):
            while not self._accept(")"):
                option = self._next_text().upper()
                if self._word() not in (",", ")"):
                    if self._next_text().upper() not in ("FALSE", "OFF", "0"):
                        options.add(option)
                else:
                    options.add(option)
                self._accept(",")
        while self._word() in ("ANALYZE", "ANALYSE", "VERBOSE"):
            options.add(self._next_text().upper().replace("ANALYSE", "ANALYZE"))
        return self._query(StatementKind.EXPLAIN, "EXPLAIN", options=frozenset(options))

    def _copy(self) -> Statement:
        from server.sql.query import dialect

        start = self._index
        depth = 0
        while self._index < len(self._tokens):
            word = self._word()
            depth += (word == "(") - (word == ")")
            if depth == 0 and word in ("TO", "FROM") and self._index > start:
                break
            self._index += 1
        source = self._tokens[start : self._index]
        direction = self._next_text().upper()
        target = self._next_text().upper()
        if direction == "FROM":
            return self._copy_in(source, target)
        if target != "STDOUT":
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "COPY writes to no file of the server",
                hint="Use COPY ... TO STDOUT, or psql's \\copy.",
            )
        if len(source) > 2 and _is_mark(source[0], "(") and source[1].text.upper() == "SUBSCRIBE":
            live, live_tree = self._live(source[2:-1])
            copy = self._copy_format()
            return self._live_statement(StatementKind.COPY_OUT, "COPY", live, live_tree, copy=copy)
        if len(source) > 2 and source[1].text.upper() in _WRITE_TAGS:
            return self._copy_returning(source[1:-1])
        if source and _is_mark(source[0], "("):
            tree = dialect.parse_query(source[1:-1], self._all)
        elif source:
            table, wanted = self._copied_table(source)
            query = f"SELECT {wanted} FROM {table}"  # noqa: S608 - parsed, and checked as any query
            tree = dialect.parse_query(dialect.tokenize(query), query)
        else:
            raise dialect.syntax_error_at(None, self._all)
        copy = self._copy_format()
        return self._with_tree(StatementKind.COPY_OUT, "COPY", tree, copy=copy)

    def _copy_in(self, source: list[Token], target: str) -> Statement:
        from server.sql.query import dialect

        if target != "STDIN":
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "COPY reads no file of the server",
                hint="Use COPY ... FROM STDIN, or psql's \\copy.",
                position=self._offset + 1,
            )
        if not source or _is_mark(source[0], "("):
            raise dialect.syntax_error_at(source[0] if source else None, self._all)
        table, columns = self._copied_table(source)
        if columns == "*":
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "COPY FROM needs the names of the columns",
                hint="Columns have the order in which fields were first seen, which differs between"
                " instances: write COPY topic (column, ...), or (_body) for whole messages.",
                position=self._offset + 1,
            )
        insert = f"INSERT INTO {table} ({columns}) SELECT NULL"
        tree = dialect.parse_query(dialect.tokenize(insert), insert)
        copy = self._copy_format()
        self._accept(")")
        self._expect_end()
        return self._statement(StatementKind.COPY_IN, "COPY", tree=tree, copy=copy)

    def _copy_returning(self, tokens: list[Token]) -> Statement:
        """Read COPY of a statement that writes, which has to return rows."""
        from server.sql.query import dialect

        tree = dialect.parse_query(tokens, self._all)
        if tree.args.get("returning") is None:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "COPY query must have a RETURNING clause",
                position=tokens[0].start + 1,
            )
        return self._statement(
            StatementKind.COPY_OUT,
            "COPY",
            tree=tree,
            parameter_count=self._count_parameters(tree),
            copy=self._copy_format(),
            has_returning=True,
        )

    def _live(self, tokens: list[Token]) -> tuple[LiveTerms, exp.Expr | None]:
        """Return the terms of a SUBSCRIBE, and its query, from the tokens after it."""
        from sqlglot import exp

        from server.sql.query import dialect
        from server.sql.query.live_terms import check_live_query, make_terms

        if not tokens:
            raise dialect.syntax_error_at(None, self._all)
        reader = _StatementReader(tokens, self._all)
        reader._accept("TO")
        topic, tree = None, None
        if reader._word() == "(":
            query = reader._parenthesized()
            if not query:
                raise dialect.syntax_error_at(tokens[-1], self._all)
            tree = dialect.parse_query(query, self._all)
            check_live_query(tree, query[0].start + 1)
        else:
            topic = reader._topic_name()
        version = reader._as_of()
        terms = make_terms(topic, reader._options())
        version = version or reader._as_of()
        reader._expect_end()
        if version is None:
            return terms, tree
        if tree is None:
            tree = exp.Select(expressions=[version.expression])
        else:
            tree.args["from_"].this.set("version", version)
        return terms._replace(version=version), tree

    def _as_of(self) -> exp.Version | None:
        """Return the moment of AS OF, if it follows; it reaches to WITH, or to the end."""
        from sqlglot import exp

        from server.sql.query import dialect

        start = self._index
        if not (self._accept("AS") and self._accept("OF")):
            self._index = start
            return None
        depth = 0
        while self._index < len(self._tokens) and not (depth == 0 and self._word() == "WITH"):
            depth += (self._word() == "(") - (self._word() == ")")
            self._index += 1
        tokens = [*dialect.tokenize("SELECT 1 FROM t"), *self._tokens[start : self._index]]
        version = dialect.parse_query(tokens, self._all).find(exp.Version)
        if version is None:
            raise dialect.syntax_error_at(self._tokens[start], self._all)
        return version

    def _live_statement(
        self,
        kind: StatementKind,
        tag: str,
        live: LiveTerms,
        tree: exp.Expr | None,
        **fields: object,
    ) -> Statement:
        if tree is None:
            return self._statement(kind, tag, live=live, **fields)
        return self._with_tree(kind, tag, tree, live=live, **fields)

    def _parenthesized(self) -> list[Token]:
        """Return the tokens within the parentheses that begin here, and advance."""
        from server.sql.query import dialect

        start = self._index + 1
        depth = 0
        while self._index < len(self._tokens):
            word = self._word()
            self._index += 1
            depth += (word == "(") - (word == ")")
            if not depth:
                return self._tokens[start : self._index - 1]
        raise dialect.syntax_error_at(None, self._all)

    def _options(self) -> dict[str, str]:
        """Return the options of WITH (name = value, ...), if it follows; names in lower case."""
        options: dict[str, str] = {}
        if not self._accept("WITH"):
            return options
        self._expect("(")
        while True:
            name = self._next_text().lower()
            self._accept("=")
            options[name] = "true" if self._word() in (",", ")") else self._next_text()
            if not self._accept(","):
                break
        self._expect(")")
        return options

    def _topic_name(self) -> TopicName:
        from server.sql.query.live_terms import TopicName

        position = (
            self._tokens[self._index].start + 1
            if self._index < len(self._tokens)
            else len(self._all) + 1
        )
        names = [self._identifier()]
        while len(names) < _MAX_NAME_PARTS and self._accept("."):
            names.append(self._identifier())
        return TopicName(names[0] if len(names) > 1 else "", names[-1], position)

    def _copied_table(self, source: list[Token]) -> tuple[str, str]:
        """Return the table of COPY and its columns, as they are written; * for all columns."""
        first, last = source[0].start, source[-1].end + 1
        opening = next((token for token in source if _is_mark(token, "(")), None)
        if opening is None or not _is_mark(source[-1], ")"):
            return self._all[first:last], "*"
        return self._all[first : opening.start], self._all[opening.end + 1 : source[-1].start]

    def _copy_format(self) -> CopyFormat:
        options: dict[str, str] = {}
        self._accept("WITH")
        in_parentheses = self._accept("(")
        while self._index < len(self._tokens) and self._word() != ")":
            name = self._next_text().upper()
            if name in ("CSV", "BINARY") and not in_parentheses:
                options["FORMAT"] = name.lower()
            elif name == "HEADER":
                is_last = self._index >= len(self._tokens)
                follows = "" if is_last else self._word()
                is_value = follows in ("TRUE", "FALSE", "ON", "OFF", "1", "0", "MATCH")
                options[name] = self._next_text().lower() if is_value else "true"
            else:
                if not in_parentheses:
                    self._accept("AS")
                options[name] = self._next_text()
            self._accept(",")
        return copy_format(options)

    # ---- settings

    def _set(self) -> Statement:
        is_local = self._accept("LOCAL")
        if not is_local and self._word_after() not in ("TO", "="):
            self._accept("SESSION")
        if self._accept("TIME"):
            self._expect("ZONE")
            return self._set_value("timezone", is_local)
        if self._accept("NAMES"):
            return self._set_value("client_encoding", is_local)
        if self._word() in ("TRANSACTION", "CHARACTERISTICS", "ROLE", "AUTHORIZATION"):
            is_user = self._word() in ("ROLE", "AUTHORIZATION")
            words = [token.text.upper() for token in self._tokens[self._index :]]
            if is_user and words[-1] not in ("DEFAULT", "NONE"):
                raise SqlError(
                    FEATURE_NOT_SUPPORTED,
                    "a session keeps the user that it logged on with",
                    hint="Connect as the other user.",
                )
            if not is_user and words[0] == "CHARACTERISTICS" and "READ" in words:
                value = "on" if "ONLY" in words else "off"
                name = "default_transaction_read_only"
                return self._statement(StatementKind.SET, "SET", name=name, value=value)
            if words[0] == "TRANSACTION" and ("READ", "ONLY") in pairwise(words):
                options = frozenset({"READ ONLY"})
                return self._statement(StatementKind.SET, "SET", options=options)
            return self._statement(StatementKind.SET, "SET")
        name = self._dotted_name()
        if not self._accept("TO"):
            self._expect("=")
        return self._set_value(name, is_local)

    def _set_value(self, name: str, is_local: bool) -> Statement:
        values: list[str] = []
        sign = ""
        is_default = self._word() == "DEFAULT"
        while self._index < len(self._tokens):
            text = self._next_text()
            if text == "-" and not sign:
                sign = "-"
                continue
            values.append(sign + text)
            sign = ""
            if self._index < len(self._tokens):
                self._accept(",")
        value = None if is_default else ", ".join(values)
        return self._statement(StatementKind.SET, "SET", name=name, value=value, is_local=is_local)

    def _show(self) -> Statement:
        return self._statement(StatementKind.SHOW, "SHOW", name=self._setting_name())

    def _reset(self) -> Statement:
        return self._statement(StatementKind.RESET, "RESET", name=self._setting_name())

    def _setting_name(self) -> str:
        words = " ".join(token.text for token in self._tokens[self._index :]).upper()
        known = {
            "ALL": "ALL",
            "TIME ZONE": "timezone",
            "TRANSACTION ISOLATION LEVEL": "transaction_isolation",
            "SESSION AUTHORIZATION": "session_authorization",
        }.get(words)
        if known is not None:
            return known
        name = self._dotted_name()
        self._expect_end()
        return name

    # ---- transactions and cursors

    def _begin(self) -> Statement:
        words = [token.text.upper() for token in self._tokens]
        is_read_only = ("READ", "ONLY") in pairwise(words)
        options = frozenset({"READ ONLY"} if is_read_only else ())
        return self._statement(StatementKind.BEGIN, "BEGIN", options=options)

    def _start(self) -> Statement:
        self._expect("TRANSACTION")
        statement = self._begin()
        return self._statement(statement.kind, "START TRANSACTION", options=statement.options)

    def _commit(self) -> Statement:
        return self._statement(StatementKind.COMMIT, "COMMIT")

    def _rollback(self) -> Statement:
        while self._accept("WORK") or self._accept("TRANSACTION"):
            pass
        if self._accept("TO"):
            self._accept("SAVEPOINT")
            return self._statement(StatementKind.SAVEPOINT, "ROLLBACK", name=self._next_text())
        return self._statement(StatementKind.ROLLBACK, "ROLLBACK")

    def _savepoint(self) -> Statement:
        return self._statement(StatementKind.SAVEPOINT, "SAVEPOINT", name=self._next_text())

    def _release(self) -> Statement:
        self._accept("SAVEPOINT")
        return self._statement(StatementKind.SAVEPOINT, "RELEASE", name=self._next_text())

    def _discard(self) -> Statement:
        target = self._next_text().upper()
        return self._statement(StatementKind.DISCARD, f"DISCARD {target}", name=target)

    def _deallocate(self) -> Statement:
        self._accept("PREPARE")
        name = None if self._accept("ALL") else self._identifier()
        tag = "DEALLOCATE ALL" if name is None else "DEALLOCATE"
        return self._statement(StatementKind.DEALLOCATE, tag, name=name)

    def _declare(self) -> Statement:
        name = self._identifier()
        options: set[str] = set()
        while not self._accept("CURSOR"):
            word = self._next_text().upper()
            if word == "NO":
                self._expect("SCROLL")
            else:
                options.add(word)
        if self._accept("WITH"):
            self._expect("HOLD")
            options.add("HOLD")
        elif self._accept("WITHOUT"):
            self._expect("HOLD")
        self._expect("FOR")
        if self._accept("SUBSCRIBE"):
            live, tree = self._live(self._tokens[self._index :])
            return self._live_statement(
                StatementKind.DECLARE,
                "DECLARE CURSOR",
                live,
                tree,
                name=name,
                options=frozenset(options),
            )
        return self._query(
            StatementKind.DECLARE, "DECLARE CURSOR", name=name, options=frozenset(options)
        )

    def _fetch(self) -> Statement:
        return self._fetch_or_move(StatementKind.FETCH, "FETCH")

    def _move(self) -> Statement:
        return self._fetch_or_move(StatementKind.MOVE, "MOVE")

    def _fetch_or_move(self, kind: StatementKind, tag: str) -> Statement:
        count: int | None = 1
        word = self._word()
        if word in ("PRIOR", "FIRST", "LAST", "ABSOLUTE", "BACKWARD", "-"):
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                "cursors move forward only",
                hint="Declare another cursor to read the rows again.",
            )
        if word in ("NEXT", "FORWARD", "RELATIVE"):
            self._index += 1
            word = self._word()
        if word == "ALL":
            count = None
            self._index += 1
        elif word.isdigit():
            count = int(word)
            self._index += 1
        if not self._accept("FROM"):
            self._accept("IN")
        name = self._identifier()
        timeout_s = None
        if kind is StatementKind.FETCH and self._word() == "WITH":
            from server.sql.query.live_terms import fetch_timeout_s

            timeout_s = fetch_timeout_s(self._options())
        self._expect_end()
        return self._statement(kind, tag, name=name, count=count, timeout_s=timeout_s)

    def _close(self) -> Statement:
        name = None if self._accept("ALL") else self._identifier()
        return self._statement(StatementKind.CLOSE, "CLOSE CURSOR", name=name)

    def _listen(self) -> Statement:
        topic = self._topic_name()
        self._expect_end()
        return self._statement(StatementKind.LISTEN, "LISTEN", topic=topic)

    def _unlisten(self) -> Statement:
        topic = None if self._accept("*") else self._topic_name()
        self._expect_end()
        return self._statement(StatementKind.UNLISTEN, "UNLISTEN", topic=topic)

    def _notify(self) -> Statement:
        topic = self._topic_name()
        payload = self._next_text() if self._accept(",") else ""
        self._expect_end()
        return self._statement(StatementKind.NOTIFY, "NOTIFY", topic=topic, value=payload)

    _STATEMENTS: Final[dict[str, Callable[[_StatementReader], Statement]]] = {
        "EXPLAIN": _explain,
        "COPY": _copy,
        "SET": _set,
        "SHOW": _show,
        "RESET": _reset,
        "BEGIN": _begin,
        "START": _start,
        "COMMIT": _commit,
        "END": _commit,
        "ROLLBACK": _rollback,
        "ABORT": _rollback,
        "SAVEPOINT": _savepoint,
        "RELEASE": _release,
        "DISCARD": _discard,
        "DEALLOCATE": _deallocate,
        "DECLARE": _declare,
        "FETCH": _fetch,
        "MOVE": _move,
        "CLOSE": _close,
        "LISTEN": _listen,
        "UNLISTEN": _unlisten,
        "NOTIFY": _notify,
    }

    # ---- errors

    def _refusal(self, word: str) -> SqlError:
        """Return the error for a statement that is not supported, with an alternative."""
        return refusal(word, self._offset + 1) or self.syntax_error()

    def _statement(self, kind: StatementKind, tag: str, **fields: object) -> Statement:
        return Statement(self._text, kind, tag, self._offset, **fields)  # type: ignore[arg-type]  # by name


def _is_mark(token: Token, mark: str) -> bool:
    """Return whether a token is a mark of one character, and no quoted name that consists of it."""
    return token.text == mark and token.start == token.end
