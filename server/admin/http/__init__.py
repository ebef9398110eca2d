"""HTTP/1.1: from a socket's bytes to a `Request`, and from a `Response` to bytes.

It knows nothing of AMPS. The protocol is h11's affair, which does no I/O; what is here is what
touches sockets: waiting, within limits, and letting go.

Source: RFC 9110, HTTP Semantics; RFC 9112, HTTP/1.1.
"""
