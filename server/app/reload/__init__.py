"""Changes of the configuration while the instance runs: the differences that can change live."""
