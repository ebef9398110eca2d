"""Pages of another site, in a real browser: nothing that they have it send acts, or is answered.

The instance is reached over plain HTTP by a name that is not localhost: there, browsers send
neither Sec-Fetch-Site nor, if the page does not want it, a Referer.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.admin.console.browser import Browser, running_browser
from tests.admin.console.conftest import require_chromium
from tests.admin.console.servers import WEBSOCKET
from tests.admin.support import Admin, running_admin
from tests.support.server import free_port
from tests.support.waiting import wait_until

HOST: Final = "amps-host.corp"
EVIL: Final = "evil.test"
PATH: Final = "/amps/administrator/actions/say"

ACTION: Final = """
<Actions>
  <Action>
    <On><Module>amps-action-on-admin</Module><Options><Path>say</Path></Options></On>
    <Do><Module>amps-action-do-echo-message</Module>
      <Options><Message>heard {{what}}</Message></Options></Do>
  </Action>
</Actions>
"""

NO_REFERRER: Final = "<meta name=referrer content=no-referrer>"

TRICKS: Final = {
    "img": '<img src="URL">',
    "img without referrer": '<img referrerpolicy=no-referrer src="URL">',
    "fetch no-cors": '<script>fetch("URL",{mode:"no-cors",referrerPolicy:"no-referrer"})</script>',
    "fetch cors": '<script>fetch("URL",{referrerPolicy:"no-referrer"})</script>',
    "form POST": f'{NO_REFERRER}<form method=post action="URL"></form>'
    "<script>document.forms[0].submit()</script>",
    "form GET": f'{NO_REFERRER}<form action="URL"></form>'
    "<script>document.forms[0].submit()</script>",
    "location": f'{NO_REFERRER}<script>location="URL"</script>',
    "refresh": f'{NO_REFERRER}<meta http-equiv=refresh content="0;URL">',
    "iframe": '<iframe referrerpolicy=no-referrer src="URL"></iframe>',
    "script": '<script referrerpolicy=no-referrer src="URL"></script>',
    "prefetch": '<link rel=prefetch referrerpolicy=no-referrer href="URL">',
    "websocket": "<script>new WebSocket('URL'.replace('http', 'ws'))</script>",
    "beacon": '<script>navigator.sendBeacon("URL")</script>',
}


@dataclass(frozen=True)
class Sites:
    """The instance, a page of another site, and a browser that finds both.

    Attributes:
        admin: the instance.
        browser: the browser.
        websocket: the port of a websocket transport without authentication.
        evil: where the other site is.
        pages: its pages, by their paths.
    """

    admin: Admin
    browser: Browser
    websocket: int
    evil: str
    pages: dict[str, str] = field(default_factory=dict)

    @property
    def own(self) -> str:
        """Where the instance is."""
        return f"http://{HOST}:{self.admin.port}"

    def asked(self, path: str = PATH) -> int:
        """Count the requests for a path that have been answered."""
        return self.admin.server.log().count(f" {path}: ")

    def fetch(self, script: str) -> Any:
        """Run a script in the page, and wait for what it gives to `done`."""
        return self.browser.driver.execute_async_script(f"const done = arguments[0]; {script}")


@contextmanager
def _serving(pages: dict[str, str]) -> Iterator[int]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<!doctype html>{pages.get(self.path, '')}".encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    require_chromium()
    websocket, pages = free_port(), {"/": "<h1>evil</h1>"}
    rules = f"--host-resolver-rules=MAP {HOST} 127.0.0.1, MAP {EVIL} 127.0.0.1"
    external = f"<ExternalInetAddr>{HOST}</ExternalInetAddr><SQLTransport>any-ws</SQLTransport>"
    transports = WEBSOCKET.format(port=websocket)
    with (
        running_admin(
            tmp_path_factory.mktemp("admin"), external, ACTION, transports=transports, level="trace"
        ) as admin,
        _serving(pages) as port,
        running_browser(tmp_path_factory.mktemp("chromium"), rules) as browser,
    ):
        yield Sites(admin, browser, websocket, f"http://{EVIL}:{port}", pages)


@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_of_another_site_acts(sites: Sites, trick: str) -> None:
    before = sites.asked()
    mark = trick.replace(" ", "-")
    sites.pages["/trick"] = TRICKS[trick].replace("URL", f"{sites.own}{PATH}?what={mark}")
    sites.browser.driver.get(f"{sites.evil}/trick")
    wait_until(lambda: sites.asked() > before, "the browser has not asked")
    assert sites.admin.ask(f"{PATH}?what=behind-{mark}").status == 200, "as a program asks"
    assert sites.admin.server.waits_for(lambda log: f"heard behind-{mark}" in log)
    assert f"heard {mark}" not in sites.admin.server.log()


def test_our_own_pages_act_by_that_name(sites: Sites) -> None:
    """The console's way, and the form that a link leads to."""
    sites.browser.driver.get(f"{sites.own}/")
    status = sites.fetch(
        f"fetch('{PATH}', {{method: 'POST', headers: {{'X-Requested-With': 'console'}},"
        "body: new URLSearchParams({what: 'the console'})}).then((one) => done(one.status))"
    )
    assert status == 200
    assert sites.admin.server.waits_for(lambda log: "heard the console" in log)
    sites.browser.driver.get(f"{sites.own}{PATH}?what=a-form")
    assert "heard a-form" not in sites.admin.server.log()
    sites.browser.button("say").click()
    assert sites.admin.server.waits_for(lambda log: "heard a-form" in log)


READ: Final = "fetch('{url}').then((one) => done(one.status)).catch(() => done('kept from it'))"
CONNECT: Final = """
const socket = new WebSocket('ws://{host}:{port}/amps/json');
socket.onopen = () => done('open');
socket.onerror = () => done('refused');
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/amps/instance/config.xml", "kept from it"),
        ("/amps/instance/clients.json", "kept from it"),
        ("/console/session.json", "kept from it"),
        ("/metrics", "kept from it"),
        ("/healthz", 200),
    ],
)
def test_pages_of_another_site_read_only_whether_it_is_there(
    sites: Sites, path: str, expected: object
) -> None:
    sites.browser.driver.get(f"{sites.evil}/")
    assert sites.fetch(READ.format(url=f"{sites.own}{path}")) == expected
    sites.browser.driver.get(f"{sites.own}/")
    assert sites.fetch(READ.format(url=path)) == 200


@pytest.mark.parametrize("host", [HOST, "localhost", "127.0.0.1"])
def test_pages_of_another_site_open_no_websocket(sites: Sites, host: str) -> None:
    sites.browser.driver.get(f"{sites.evil}/")
    assert sites.fetch(CONNECT.format(host=host, port=sites.websocket)) == "refused"
    assert sites.admin.server.logs(f"Pages of '{sites.evil}' may not connect")


def test_the_console_opens_a_websocket(sites: Sites) -> None:
    sites.browser.driver.get(f"{sites.own}/")
    assert sites.fetch(CONNECT.format(host=HOST, port=sites.websocket)) == "open"
