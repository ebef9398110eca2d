"""What a client is like at the moment, why it is slow, and what its filters cost.

What is known comes from one question to the engine (`gathering.py`, which gives `facts.py`) and
from the last samples (`pace.py`). Rules find out what of it matters (`reasons.py`), `document.py`
writes all of it down, and `pages.py` answers requests.
"""
