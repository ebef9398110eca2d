"""What the command ampServer does with a configuration: check it, show it, run it."""
