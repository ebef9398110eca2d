"""Sending much over a socket, in C; the theory of it is in socket_send.pyx."""

def send_all(descriptor: int, pieces: list[bytes]) -> None:
    """Send bytes, and wait until the system has taken all of them.

    Args:
        descriptor: of a socket that may be one that does not block.
        pieces: what to send, in this order.

    Raises:
        OSError: the connection is gone, or has been shut down meanwhile.
    """
