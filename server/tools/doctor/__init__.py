"""What `amps-doctor` looks at, and what it thinks of it.

Each module looks at one thing: the configuration, the admin interface, the machine, the files, the
logs. It adds to one `Examination` what it has found out (facts), what it thinks of it (findings),
and what a colleague should have (texts). Nothing that can go wrong with an instance keeps another
module from its work: what cannot be looked at is a finding, too.

What is secret in the configuration is looked for in all that leaves the command (`secrecy.py`), so
that it is nowhere else either. Messages are never read; logs are passed on from level `info` up.
"""
