"""What every room may know: clock, log, limits, files, libraries, and a thread that helps."""
