"""What a topic is, and how names and patterns meet."""
