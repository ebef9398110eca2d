"""The forms in which the tree is shown: JSON, XML, CSV, plain text and pages.

Source: AMPS User Guide, Output Formatting.
"""
