"""Makes docs/messages.md from the catalogue.

`python -m server.log.reference_page docs/messages.md`
"""

import sys
from itertools import groupby
from pathlib import Path
from typing import Final

from server.log.catalogue import CATALOGUE, CATEGORIES, CatalogueMessage

_HEAD: Final = """\
# Log messages

Every message that the server's log can hold, by category. The same is printed by `ampserr ID`,
which also takes a regular expression. In the texts `{name}` stands for a value, and `{name:lead}`
for a value that is written after its lead, or not at all.

This page is generated from `server/log/catalogue.toml`; after a change there, run
`python -m server.log.reference_page docs/messages.md`.
"""


def page() -> str:
    """Return the whole page, in Markdown."""
    sections = [_HEAD]
    for category, messages in groupby(CATALOGUE.values(), lambda message: message.category):
        sections.append(f"## {category}: {CATEGORIES[category]}\n")
        sections.extend(_section(message) for message in messages)
    return "\n".join(sections)


def _section(message: CatalogueMessage) -> str:
    return (
        f"### {message.id} ({message.level.label})\n\n"
        f"```text\n{message.template.text.strip()}\n```\n\n"
        f"{message.meaning}\n\n{message.action}\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
