"""Authentication and entitlement: which clients may log on, and their permissions."""
