"""Explains a client's state, the reasons why it is slow, and the cost of its filters.

The facts come from one question to the engine (`collector.py`, which returns `facts.py`) and from
the last samples (`throughput.py`). Rules select the relevant ones (`reasons.py`), `document.py`
formats all of them, and `pages.py` answers requests.
"""
