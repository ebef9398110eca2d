"""Background work of an instance: old journals, watched files, memory, diagnostics."""
