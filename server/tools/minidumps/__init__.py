"""What minidumps say: those of this server, and as far as it goes those of other programs."""
