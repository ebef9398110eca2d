"""Backups of an instance: their files and manifests, and how they are verified and restored.

A backup is a directory with copies of the instance's files, and a manifest that lists them, which
is written last: a backup without a manifest is incomplete. `docs/formats/backup.md` describes the
layout. `server/engine/maintenance/backup.py` makes backups of a running instance.

The copied files are those that a kill of the instance could have left, so a start recovers from
them. Each kind of file is copied before the kinds that must not be behind it: SOW files and the
tables beside the journals first, the journals last. So the copied log has every change that the
other files have.
"""
