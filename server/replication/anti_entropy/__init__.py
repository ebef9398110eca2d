"""Anti-entropy: compares the records of replicas by digests, and repairs differences."""
