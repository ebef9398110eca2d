"""The process: memory, garbage collection, watched files, the supervisor, minidumps."""
