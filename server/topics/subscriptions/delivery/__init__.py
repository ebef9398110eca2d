"""Delivery: frames messages for their subscribers, and buffers the output."""
