"""How Sphinx makes the site: `make docs`.

The pages are read where they are, so that a link from one to another leads to the same place here,
on GitHub, and in a copy that is installed. docs/README.md is the only list of pages: what it says
becomes the navigation. Warnings are errors (a link or an anchor that leads nowhere, a page that the
list does not have), and nothing is fetched, neither to make the site nor to read it.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from config_schema.version import VERSION  # noqa: E402 - found by the path above

READ = {"docs", "man", "sample_configs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"}

project = "Amperage"
version = release = VERSION
html_title = f"Amperage {VERSION}"
copyright = "the Amperage developers"  # noqa: A001 - Sphinx's name for it

extensions = ["myst_parser", "drawings", "manual_pages", "navigation"]
root_doc = "docs/README"
include_patterns = ["*.md", "docs/**.md", "man/*.1", "sample_configs/README.md"]
exclude_patterns = [path.name for path in ROOT.iterdir() if path.name not in READ]

myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]  # pages may begin with what GitHub shows as a title

html_theme = "furo"
html_extra_path = ["static"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
highlight_language = "text"
smartquotes = False  # options have two hyphens
