"""Pagination: result sets, and the pages that subscriptions see of them."""
