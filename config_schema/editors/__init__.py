"""The schemas that editors use to complete and check configurations.

    python -m config_schema.editors schemas

`amps_config.xsd` is XSD 1.1, which hardly any editor reads, and it describes a configuration after
Include and variables are resolved. Editors see the file before that. So two schemas are generated
from it that describe the written form: elements in any order, `Include` wherever elements are
legal, `${VARIABLE}` in place of any value, older names beside today's. An editor cannot know which
elements are required or may occur only once, since an included file may have them; XSD 1.0 cannot
express that for elements in any order anyway. `ampServer --verify-config` checks all of it.

    values.py   the values of elements, in the terms of both languages
    xsd.py      XML Schema 1.0: xmllint, VS Code, IntelliJ
    rnc.py      RELAX NG in compact syntax: Emacs

The output depends on the schema alone: a test compares the files that are shipped.
"""

from config_schema.editors.rnc import relax_ng
from config_schema.editors.xsd import xml_schema

__all__ = ["SCHEMAS", "schema_text"]

SCHEMAS = {"xsd": xml_schema, "rnc": relax_ng}
"""The generator of each language's schema, by the ending of its file."""


def schema_text(language: str) -> str:
    """Return the schema in one of the languages, a key of SCHEMAS."""
    return SCHEMAS[language]()
