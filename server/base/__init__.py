"""What every room may know: the clock, limits, how files are made and libraries loaded."""
