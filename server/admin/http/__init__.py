"""HTTP/1.1: from a socket's bytes to a `HttpRequest`, and from a `HttpResponse` to bytes.

It is independent of AMPS. h11, which does no I/O, implements the protocol; these modules handle the
sockets: waiting, within limits, and closing.

Source: RFC 9110, HTTP Semantics; RFC 9112, HTTP/1.1.
"""
