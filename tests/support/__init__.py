"""What tests share: a real server process, and a peer that speaks raw bytes to it."""
