"""Chromium without a window, as tests use it: what is on the page, by its words."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.waiting import WAIT_SECONDS

if TYPE_CHECKING:
    from selenium.webdriver.chrome.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

WIDE: Final = 1440
NARROW: Final = 390
"""Widths of screens in pixels."""

CHROMIUM: Final = "chromium"
DRIVER: Final = "chromedriver"

_AXE: Final = (Path(__file__).parent / "vendor/axe.js").read_text()
_OPTIONS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-prefers-reduced-motion",
    # One process for all pages, which has the scripts of the console compiled: others would do it
    # again, with half of the work of loading a page.
    "--renderer-process-limit=1",
    "--process-per-site",
    "--disable-site-isolation-trials",
    "--disable-features=IsolateOrigins,site-per-process",
    "--in-process-gpu",
    "--disable-extensions",
    "--disable-breakpad",
)

_LOOK_SECONDS: Final = 0.1
"""Between two looks at the page, each of which the browser has to answer."""

BETWEEN: Final = "between-pages"
"""A page that the console does not have, which it says."""

_RULES: Final = ("wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice")

_COLLECT: Final = """
window.__complaints = [];
addEventListener("securitypolicyviolation", (event) => window.__complaints.push(
  `${event.effectiveDirective} forbids ${event.blockedURI} in ${event.sourceFile}`));
addEventListener("error", (event) => window.__complaints.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => window.__complaints.push(
  `rejected: ${event.reason}`));
"""
"""Runs in each page before its own scripts."""


class Browser:
    """A browser with one page.

    Args:
        driver: moves it.

    Attributes:
        driver: for what is not here.
        port: of the admin interface whose console is shown.
        logs_are_expected: whether a test makes the page say on the console that something failed,
            as it does when its server stops.
        is_thorough: whether axe looks at all pages that tests want it to look at.
    """

    def __init__(self, driver: WebDriver) -> None:
        self.driver = driver
        self.port = 0
        self.logs_are_expected = False
        self.is_thorough = True
        self._rests = False
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _COLLECT})

    def begin(self) -> None:
        """Forget what was before."""
        self.logs_are_expected = False
        self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # it has no types
        self.size(1440, 900)
        self.scheme("light")

    def close_page(self) -> None:
        """Leave the page, so that it asks for nothing any more."""
        self.driver.get("about:blank")

    def rest(self) -> None:
        """Leave the page, and keep the console for the next one that is opened."""
        self._rests = self._is_reusable() and not self.logs_are_expected
        if self._rests:
            self.go(BETWEEN)
        else:
            self.close_page()

    def complaints(self) -> list[str]:
        """What its policy has kept the page from doing, and what went wrong in it."""
        found: list[str] = self.run("return window.__complaints ?? []")
        if self.logs_are_expected:
            return found
        log = self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # it has no types
        return found + [entry["message"] for entry in log if entry["level"] == "SEVERE"]

    def size(self, width: int, height: int) -> None:
        """Have the page be of a size, in pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, scheme: str) -> None:
        """Let the system be light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def load(self, path: str = "overview") -> None:
        """Load the console with a page of it, by what stands behind `#/`."""
        self.driver.get("about:blank")  # another fragment alone would load nothing
        if self._rests:  # the server of the page before may have ended since
            self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # it has no types
            self._rests = False
        self.driver.get(f"http://127.0.0.1:{self.port}/#/{path}")
        self.shows("#main h1")

    def open(self, path: str = "overview") -> None:
        """Show a page of the console, by what stands behind `#/`.

        To load the console takes a third of a second of a processor, several times as long as to
        draw a page. It is loaded if there is none, or if something may be left of another test.
        """
        if not self._is_reusable():
            self.load(path)
            return
        self._rests = False
        self.go(BETWEEN)
        self.shows("#main", BETWEEN)
        self.go(path)
        self.until(lambda: self.count("#main h1") and BETWEEN not in self.text("#main"))

    def _is_reusable(self) -> bool:
        """Return whether the page is the console, in the state in which it is loaded."""
        found: bool = self.run(
            "return location.port === arguments[0] && !!document.querySelector('#app #main h1')"
            " && !document.querySelector('dialog') && !localStorage.length"
            " && window.__complaints.length === 0",
            str(self.port),
        )
        return found

    def go(self, path: str) -> None:
        """Follow a link within the console."""
        self.run("location.hash = arguments[0]", f"#/{path}")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script in the page, and give what it returns."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "#main") -> str:
        """The text of the first element that a selector has; empty if there is none."""
        found: str = self.run(
            "const one = document.querySelector(arguments[0]);"
            "return one?.innerText ?? one?.textContent ?? ''",  # of pictures, the latter
            selector,
        )
        return found

    def count(self, selector: str) -> int:
        """How many elements a selector has."""
        found: int = self.run("return document.querySelectorAll(arguments[0]).length", selector)
        return found

    def shows(self, selector: str, text: str = "") -> None:
        """Wait until an element is there, and has some text."""
        self.until(
            lambda: self.count(selector) > 0 and text in self.text(selector),
            f"{selector} does not show {text!r}",
        )

    def until(self, condition: Callable[[], object], complaint: str = "it did not come") -> None:
        """Wait until something is true of the page."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            said = f"{complaint}; the page says:\n{self.text('body')}\n"
            assert time.monotonic() < deadline, said + "\n".join(self.complaints())
            time.sleep(_LOOK_SECONDS)

    def label(self, selector: str) -> str:
        """What the first element that a selector has is called to those who do not see it."""
        found: str = self.run(
            "return document.querySelector(arguments[0])?.ariaLabel ?? ''", selector
        )
        return found

    def says(self, text: str) -> None:
        """Wait until the page says something."""
        self.shows("body", text)

    def find(self, selector: str) -> WebElement:
        """The first element that a selector has."""
        self.shows(selector)
        return self.driver.find_element("css selector", selector)

    def button(self, label: str, within: str = "body") -> WebElement:
        """A button, by what stands on it."""
        script = (
            "return [...document.querySelectorAll(`${arguments[1]} button`)]"
            ".find((one) => one.innerText.trim() === arguments[0]) ?? null"
        )
        self.until(lambda: self.run(script, label, within), f"there is no button {label}")
        found: WebElement = self.run(script, label, within)
        return found

    def type(self, selector: str, text: str) -> None:
        """Type into a field that is empty."""
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def inaccessible(self, rules: Sequence[str] = _RULES, *, always: bool = False) -> list[str]:
        """What axe finds wrong with the page: the rule, and where.

        Args:
            rules: names of rules, or of groups of them.
            always: also in runs that are not long, in which axe looks at each page of the console,
                and at one dialog, panel and notice of each kind.
        """
        if not (always or self.is_thorough):
            return []
        if self.run("return typeof axe") == "undefined":
            self.driver.execute_script(_AXE)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "const say = (one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html)}`;"
            "axe.run(document, {runOnly: arguments[0]})"
            ".then((found) => done(found.violations.map(say)))",
            list(rules),
        )
        return list(found)

    def picture(self, path: Path, width: int, height: int = 900) -> None:
        """Make a screenshot, of few colours so that it is small."""
        self.size(width, height)
        self.settle()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))

    def settle(self) -> None:
        """Wait for two frames, in which what has changed is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)))"
        )


@contextmanager
def running_browser(directory: Path, *more: str) -> Iterator[Browser]:
    """A browser, ended in the end.

    Args:
        directory: for what it keeps.
        more: further options of its command line.
    """
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = shutil.which(CHROMIUM) or CHROMIUM
    for option in (*_OPTIONS, *more, f"--user-data-dir={directory}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, Service(shutil.which(DRIVER) or DRIVER))
    driver.set_script_timeout(WAIT_SECONDS)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
