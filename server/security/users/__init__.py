"""libamperage_users.so: users and what they may do, in one file."""
