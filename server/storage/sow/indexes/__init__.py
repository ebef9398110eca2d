"""Indexes of records: hash indexes and memo indexes."""
