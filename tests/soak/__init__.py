"""Many connections, held and coming and going; `make test-long` runs them at length."""
