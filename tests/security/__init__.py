"""Who may log on, and what they may do."""
