"""As whom this instance logs on to others."""
