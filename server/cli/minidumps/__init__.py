"""Readers of minidumps: those of this server and, in part, those of other programs."""
