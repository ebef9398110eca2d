"""Stores: the transaction log, the records of SOW topics, and views."""
