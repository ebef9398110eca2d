"""The documentation: every block of code in it is run, and the site is built from it."""
