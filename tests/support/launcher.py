"""Has a command run by the process that stands by: see `tests.support.quick`.

    python -I -S launcher.py SOCKET TARGET ARGUMENTS

It hands over its standard streams, directory, arguments and environment, passes signals on, and
ends as the command does. To start it takes a hundredth of a second, as it imports only what is
compiled: `signal` and `socket` would take as long again.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # nothing describes it
import _socket as socket
import marshal
import os
import sys

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
STREAMS = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))


def main() -> int:
    """Return the exit code of the command; if a signal has ended it, end likewise."""
    address, target, *arguments = sys.argv[1:]
    request = marshal.dumps((target, arguments, os.getcwd(), dict(os.environ)))
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    standby = socket.socket(socket.AF_UNIX)
    standby.connect(address)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, STREAMS)]
    standby.sendmsg([len(request).to_bytes(4, "big")], rights)
    standby.sendall(request)
    child = int.from_bytes(standby.recv(4), "big")
    for number in FORWARDED:
        signal.signal(number, lambda given, _: os.kill(child, given))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    code = int.from_bytes(standby.recv(4), "big", signed=True)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
