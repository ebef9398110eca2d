"""What the console costs a browser that shows 10,000 clients, a sample of which comes each second.

    python -m benchmarks console

Chromium shows the page of clients while it is loaded, while samples come in which thousands have
changed, while somebody scrolls through all rows, and while they type and sort. The table has the
longest time between two frames of each, and the longest task of the page's thread (browsers call
long what takes 50 ms and more). Needs Debian's chromium and chromium-driver, and selenium.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import frame
from amperage.wire.header import Header, encode_header
from benchmarks.harness import amperage, free_port
from benchmarks.tables import print_table

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver

CLIENTS: Final = 10_000
WINDOW_SECONDS: Final = 10
_OPTIONS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1440,900")
_PATIENCE_SECONDS: Final = 120
_PAUSE_SECONDS: Final = 0.05
"""Between the messages of a hundred clients and those of the next: 2,000 a second."""

_MEASURE: Final = """
window.__measured = {frame: 0, task: 0};
new PerformanceObserver((list) => list.getEntries().forEach((entry) =>
  window.__measured.task = Math.max(window.__measured.task, entry.duration)
)).observe({type: "longtask", buffered: true});
let before = performance.now();
requestAnimationFrame(function frame(now) {
  window.__measured.frame = Math.max(window.__measured.frame, now - before);
  before = now;
  requestAnimationFrame(frame);
});
"""
_TAKE: Final = """
const found = window.__measured;
window.__measured = {frame: 0, task: 0};
return [found.frame, found.task];
"""
_SCROLL: Final = """
const grid = document.querySelector("[role=grid]"), done = arguments[0];
let steps = 0;
requestAnimationFrame(function step() {
  grid.scrollTop += 2000;
  if (++steps < 200) requestAnimationFrame(step); else done();
});
"""


def main() -> None:
    """Measure and print."""
    admin = free_port()
    section = f"<Admin><InetAddr>127.0.0.1:{admin}</InetAddr><Interval>1s</Interval></Admin>"
    rows: list[list[object]] = []
    with amperage(section) as server, _clients(server.port), _browser() as driver:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _MEASURE})
        driver.get(f"http://127.0.0.1:{admin}/#/clients")
        _wait(lambda: f"{CLIENTS:,} clients" in _text(driver))
        rows.append(["until all are there", *_taken(driver)])
        time.sleep(WINDOW_SECONDS)
        rows.append([f"{WINDOW_SECONDS} samples", *_taken(driver)])
        driver.set_script_timeout(_PATIENCE_SECONDS)
        driver.execute_async_script(_SCROLL)
        rows.append(["scrolling, 200 steps", *_taken(driver)])
        drawn = driver.execute_script("return document.querySelectorAll('tr[data-id]').length")
        driver.find_element("css selector", "[data-search]").send_keys("client-99")
        _wait(lambda: f" of {CLIENTS:,}" in _text(driver))
        rows.append(["searching", *_taken(driver)])
        for button in driver.find_elements("css selector", "thead button"):
            button.click()
        time.sleep(1)
        rows.append(["sorting by each column", *_taken(driver)])
    print_table(
        f"The console with {CLIENTS:,} clients, {drawn} rows of them drawn",
        ["", "longest time between frames, ms", "longest task, ms"],
        rows,
    )


def _text(driver: WebDriver) -> str:
    found: str = driver.execute_script("return document.querySelector('.found')?.innerText ?? ''")
    return found


def _taken(driver: WebDriver) -> list[float]:
    found: list[float] = driver.execute_script(_TAKE)
    return [round(one) for one in found]


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the page does not show what is waited for")
        time.sleep(0.1)


@contextmanager
def _clients(port: int) -> Iterator[None]:
    """Clients that publish one after the other, so that each sample has something new of many."""
    with ExitStack() as stack:
        sockets = []
        for number in range(CLIENTS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            connection.sendall(_frame("logon", number))
            sockets.append(connection)
        ended = threading.Event()

        def talk() -> None:
            while not ended.is_set():
                for number, connection in enumerate(sockets):
                    connection.sendall(_frame("publish", number))
                    if number % 100 == 0 and ended.wait(_PAUSE_SECONDS):
                        return

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _frame(command: str, number: int) -> bytes:
    if command == "logon":
        return frame(
            encode_header(Header("logon", client_name=f"client-{number}", message_type="json"))
        )
    return frame(encode_header(Header("publish", topic="nobody-reads-it")) + b"{}")


@contextmanager
def _browser() -> Iterator[WebDriver]:
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory() as directory:
        options = ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for option in (*_OPTIONS, f"--user-data-dir={Path(directory)}"):
            options.add_argument(option)
        driver = Chrome(options, Service(shutil.which("chromedriver") or ""))
        try:
            yield driver
        finally:
            driver.quit()
