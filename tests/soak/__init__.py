"""Many connections, held and coming and going; `pytest --soak` runs them at length."""
