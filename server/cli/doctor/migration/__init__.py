"""The migration of one configuration from AMPS to this server: the checklist of docs/migration.md.

`features.py` is the table of the features that a configuration may use, and of the sections that
describe the differences; `survey.py` finds those that one configuration uses; `checklist.py` makes
a checklist of them, and `text.py` prints it. It states nothing that docs/compatibility.md or the
program itself does not state.
"""
