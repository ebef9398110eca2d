"""The way from AMPS to this server, for one configuration: the checklist of docs/migration.md.

`features.py` is the table of what a configuration may use and where the differences are described;
`survey.py` finds what one does use; `checklist.py` makes a checklist of that, and `text.py` shows
it. Nothing is said here that docs/compatibility.md or the program itself does not say.
"""
