"""Parsing and composition of message bodies: one module per message type behind one interface."""
