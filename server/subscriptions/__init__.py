"""Who gets which message, and the bytes that are on the way to them."""
