"""Application of the entries that other instances send: recorded, applied, delivered."""
