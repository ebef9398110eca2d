"""How bodies are read and written: one module per message type behind one interface."""
