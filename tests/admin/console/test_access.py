"""What the console says to those who may not see everything, and whose session has ended."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from server.admin.console.log_tail import MAX_LOG_FOLLOWERS
from tests.admin.console.browser import Browser
from tests.admin.console.test_documents import follow
from tests.admin.support import Admin, running_admin
from tests.support.long_form import spread
from tests.support.waiting import wait_until

LOGON: Final = """
<WWWAuthenticate>Basic realm="AMPS Admin"</WWWAuthenticate>
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><RequireUsername>true</RequireUsername><AllowSpoofing>true</AllowSpoofing></Options>
</Authentication>
"""

HIDDEN: Final = "clients|subscriptions|queues|sow|transports|transaction_log|replication"
SOME: Final = f"""
<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
<AnonymousPaths>^/$|^/readyz|^/console(?!/(log|graph|actions))|^/amps/instance(?!/({HIDDEN}))</AnonymousPaths>
"""
"""Everybody may see some of the instance, and nobody the rest."""

REFUSED: Final = "entitlement does not allow it"


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("some"), SOME) as running:
        yield running


PATHS: Final = (
    *("clients", "subscriptions", "topics", "queues", "replication", "journals", "graph"),
    *("actions", "log", "administration"),
)


@pytest.mark.parametrize("path", spread(PATHS, 2))
def test_what_may_not_be_seen_is_not_said_to_be_nothing(
    browser: Browser, admin: Admin, path: str
) -> None:
    browser.logs_are_expected = True  # browsers log what is refused
    browser.port = admin.port
    browser.open(path)
    browser.shows("#main", REFUSED)
    for nothing in ("No client", "no queues", "No topic", "There is no", "no actions"):
        assert nothing not in browser.text("#main")
    assert browser.inaccessible() == []


def test_figures_that_may_not_be_seen_are_not_zero(browser: Browser, admin: Admin) -> None:
    browser.logs_are_expected = True
    browser.port = admin.port
    browser.open("overview")
    browser.shows(".figure:first-child dd", "\u2013")
    wait_until(lambda: REFUSED in browser.run("return document.querySelector('.figure').title"))


def test_too_many_who_follow_the_log_are_no_matter_of_entitlement(
    browser: Browser, tmp_path: Path
) -> None:
    browser.logs_are_expected = True
    with running_admin(tmp_path) as admin, ExitStack() as stack:
        for _ in range(MAX_LOG_FOLLOWERS):
            stack.enter_context(follow(admin)).recv(1)
        browser.port = admin.port
        browser.open("log")
        browser.shows("[role=alert]", f"{MAX_LOG_FOLLOWERS} follow the log already")
        browser.close_page()


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:".encode()).decode()


def log_on(browser: Browser, admin: Admin, user: str) -> None:
    """Give the browser the cookie that it would have from a logon, as nobody can type here."""
    given = admin.ask("/", Authorization=basic(user)).headers["set-cookie"]
    name, _, value = given.partition(";")[0].partition("=")
    url = f"http://127.0.0.1:{admin.port}/"
    cookie = {"name": name, "value": value, "url": url}
    browser.driver.execute_cdp_cmd("Network.setCookie", cookie)


def test_a_session_that_ends_is_said_and_begun_again(browser: Browser, tmp_path: Path) -> None:
    browser.logs_are_expected = True
    with running_admin(tmp_path, LOGON) as admin:
        browser.port = admin.port
        log_on(browser, admin, "ops")
        browser.open("clients")
        browser.shows(".foot", "Logged on as ops")
        browser.shows(".dot.live")
        reset = "/amps/administrator/authorization/authentication/reset"
        assert admin.ask(reset, "POST", Authorization=basic("ops")).status == 200
        browser.shows(".notice", "Your session has ended")
        assert browser.inaccessible(always=True) == []
        log_on(browser, admin, "ops")
        # in one step: the notice may be made anew between finding and clicking
        browser.run("document.querySelector('.notice a').click()")
        browser.shows(".dot.live")
        browser.shows("#main h1", "Clients")
        assert browser.driver.current_url.endswith("/#/clients")
        browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        browser.close_page()


@pytest.mark.parametrize("anonymous", ["", "<AnonymousPaths>^/console/logon</AnonymousPaths>"])
def test_a_logon_leads_to_the_page_with_a_cookie(tmp_path: Path, anonymous: str) -> None:
    with running_admin(tmp_path, LOGON + anonymous) as admin:
        asked = admin.ask("/console/logon")
        assert (asked.status, asked.headers["www-authenticate"][:5]) == (401, "Basic")
        done = admin.ask("/console/logon", Authorization=basic("ops"))
        assert (done.status, done.headers["location"]) == (303, "/")
        assert "amps_session=" in done.headers["set-cookie"]


def test_scripts_are_not_answered_with_a_dialog_of_the_browser(tmp_path: Path) -> None:
    with running_admin(tmp_path, LOGON) as admin:
        asked = admin.ask("/console/session.json", X_Requested_With="console")
        assert asked.status == 401
        assert asked.headers["www-authenticate"] == 'xBasic realm="AMPS Admin"'
