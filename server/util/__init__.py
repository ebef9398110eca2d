"""Modules that all packages may import: clock, log, limits, files, libraries, helper thread."""
