"""${VARIABLE} in the text and the attributes of a configuration.

Expansion works on parsed values, never on the XML, so the value of a variable cannot add elements,
close a comment or break a tag. A value is taken as it is: it is not expanded again. The value of
an undefined variable may be in a file (`config_schema.secret_files`), and is secret then.

Source: AMPS User Guide, Environment Variables in AMPS Configuration and Internal Environment
Variables. The treatment of an undefined variable is our choice, see docs/compatibility.md.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from config_schema.redaction import is_secret_name
from config_schema.secret_files import SecretFileError, read_secret_file
from config_schema.units import quoted
from config_schema.version import AMPS_VERSION

MAX_EXPANSION: Final = 1 << 20
"""Maximum number of characters that variables may add to one text or attribute."""

_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_NOT_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def has_reference(text: str) -> bool:
    """Return true if a text names a variable; an expanded text does not."""
    return _REFERENCE.search(text) is not None


class VariableError(ValueError):
    """A variable that cannot be expanded; its text is a sentence for the author."""


class Variables:
    """The variables that a configuration may use."""

    def __init__(
        self, config_path: str, *, defines: Mapping[str, str], environ: Mapping[str, str]
    ) -> None:
        """Collect the variables of one run.

        Args:
            config_path: the file the server was started with.
            defines: values given with -D; they come before the environment.
            environ: the environment.
        """
        full_path = os.path.abspath(config_path)
        built_in = {
            "AMPS_CONFIG_DIRECTORY": os.path.dirname(full_path),
            "AMPS_CONFIG_PATH": full_path,
            "AMPS_VERSION": AMPS_VERSION,
        }
        self._values = {**environ, **defines, **built_in}
        self.secrets: set[str] = set()
        """The values that were asked for, and are secret: by their names, or as they are files."""

    def expand(self, text: str) -> str:
        """Replace every ${NAME} of `text` by its value.

        Raises:
            VariableError: a variable is not defined, or its value cannot stand in a configuration.
        """
        if "${" not in text:
            return text
        self._require(dict.fromkeys(_REFERENCE.findall(text)))
        added = sum(len(self._value(reference[1])) for reference in _REFERENCE.finditer(text))
        if added > MAX_EXPANSION:
            raise VariableError(f"the variables in {quoted(text)} have values that are too long")
        expanded = _REFERENCE.sub(lambda reference: self._value(reference[1]), text)
        if has_reference(expanded):
            raise VariableError(
                f"{quoted(text)} still holds a ${{VARIABLE}} after its variables were replaced; "
                "the value of a variable is not expanded again"
            )
        return expanded

    def _require(self, names: Iterable[str]) -> None:
        missing = [quoted(name) for name in names if not self._is_defined(name)]
        if not missing:
            return
        subject, pronoun = f"variable {missing[0]} is", "it"
        if len(missing) > 1:
            subject, pronoun = f"variables {' and '.join(missing)} are", "them"
        raise VariableError(
            f"{subject} not defined; set {pronoun} in the environment or start with -DNAME=value"
        )

    def _is_defined(self, name: str) -> bool:
        """Return true if a variable is defined; read the file that has its value.

        Raises:
            VariableError: that cannot be read.
        """
        if name in self._values:
            return True
        try:
            value = read_secret_file(name, self._values)
        except SecretFileError as error:
            raise VariableError(f"variable {quoted(name)}: {error}") from None
        if value is None:
            return False
        self._values[name] = value
        if value:
            self.secrets.add(value)
        return True

    def _value(self, name: str) -> str:
        value = self._values[name]
        if _NOT_IN_XML.search(value):
            raise VariableError(
                f"the value of variable {quoted(name)} holds a character that XML does not allow"
            )
        if value and is_secret_name(name):
            self.secrets.add(value)
        return value
