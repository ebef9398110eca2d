"""libamperage_users.so: users and their permissions, in one file."""
