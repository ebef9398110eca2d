"""A web service that says who may log on, and what they may do.

    python sample_configs/permission_service.py [PORT]

An instance that runs sample_configs/web_permissions.xml asks for /NAME.json with what a client has
shown. The service answers with a permission document, with 401 where it wants to see credentials
first, and with 403 where these are not good. Yours would ask whatever has your users; this one has
two of them here.
"""

import base64
import hmac
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

TRADER = {
    "logon": True,
    "topic": [
        {"topic": "^orders/", "read": True, "write": True},
        {"topic": "^prices/", "read": "/region = 'EU'", "select": "-/cost"},
    ],
}
OPERATOR = {
    "logon": True,
    "topic": [{"topic": ".*", "read": True, "write": True}],
    "admin": [{"topic": ".*", "read": True, "write": True}],
}
USERS = {"ann": ("wonderland", TRADER), "oscar": ("trash", OPERATOR)}


class Service(BaseHTTPRequestHandler):
    """Answers one request after the other."""

    protocol_version = "HTTP/1.1"  # for ReuseConnections

    def do_GET(self):
        """Say what a user may do who has shown who they are."""
        user, password = self.credentials()
        if user is None:
            return self.answer(401, challenge='Basic realm="permissions"')
        expected, permissions = USERS.get(user, ("", None))
        asked_about = unquote(self.path.removeprefix("/").removesuffix(".json"))
        is_known = hmac.compare_digest(password.encode(), expected.encode())
        if permissions is None or not is_known or user != asked_about:
            return self.answer(403)
        return self.answer(200, permissions)

    def credentials(self):
        """Return the name and the password that are shown; None for nothing."""
        scheme, _, shown = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None, None
        user, _, password = base64.b64decode(shown).decode().partition(":")
        return user, password

    def answer(self, status, document=None, challenge=None):
        """Send an answer."""
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    ThreadingHTTPServer(("127.0.0.1", port), Service).serve_forever()
