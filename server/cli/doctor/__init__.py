"""The checks of `amps-doctor` and their verdicts.

Each module checks one subject: the configuration, the admin interface, the machine, the files, the
logs. It adds to one `Examination` its observations (facts), its verdicts (findings), and files for
a colleague (texts). No fault of an instance keeps another module from running: a subject that
cannot be examined is a finding, too.

The secrets of the configuration are searched for in all output of the command (`redaction.py`), so
that they do not appear anywhere else either. Messages are never read; log entries are included
from level `info` up.
"""
