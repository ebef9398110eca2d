"""What the console has done, for whom, and what it says when the server goes away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.console.browser import Browser
from tests.admin.support import Admin, running_admin
from tests.support.server import running_configuration

LOOK_ONLY: Final = """
<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>
<AnonymousPaths>^/$|^/readyz|^/console|^/amps$|^/amps/(host|instance)</AnonymousPaths>
"""
ACTION: Final = """
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-admin</Module>
      <Options>
        <Path>greet</Path><Name>greet</Name><RequiredParameter>whom</RequiredParameter>
      </Options>
    </On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>hello {{whom}}, how do you do</Message></Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-admin</Module>
      <Options>
        <Path>say</Path><Name>say</Name><Description>Say something</Description>
      </Options>
    </On>
    <Do>
      <Module>amps-action-do-echo-message</Module>
      <Options><Message>hello from the console</Message></Options>
    </Do>
  </Action>
</Actions>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("admin"), elements=ACTION) as running:
        yield running


def test_a_client_is_disconnected_when_that_is_confirmed(browser: Browser, admin: Admin) -> None:
    browser.logs_are_expected = True  # what was asked about it when it went may be answered by then
    browser.port = admin.port
    with admin.server.log_on("unwanted") as peer:
        browser.open("clients?find=client_name=unwanted")
        browser.find("tr[data-id]").click()
        browser.button("Disconnect", "aside").click()
        browser.shows("dialog", "Disconnect unwanted?")
        browser.button("Cancel", "dialog").click()
        browser.until(lambda: browser.count("dialog") == 0)
        browser.button("Disconnect", "aside").click()
        browser.button("Disconnect", "dialog").click()
        assert peer.is_disconnected()
        browser.shows("dialog .good", "unwanted is disconnected.")
        browser.button("Close", "dialog").click()
        browser.shows("aside", "It is not connected")


def test_what_could_not_be_done_is_said(browser: Browser, admin: Admin) -> None:
    browser.logs_are_expected = True  # browsers log answers that refuse
    browser.port = admin.port
    browser.open("clients?find=client_name=brief")
    with admin.server.log_on("brief") as peer:
        browser.find("tr[data-id]").click()
        browser.button("Pause").click()
        browser.button("Disconnect", "aside").click()
        (one,) = admin.tree("/amps/instance/clients.json")["amps"]["instance"]["clients"]
        admin.ask(f"/amps/administrator/clients/{one['id']}/disconnect", "POST")
        assert peer.is_disconnected()
    browser.button("Disconnect", "dialog").click()
    browser.shows("dialog .bad", "There is no")


def test_actions_of_the_configuration_are_run(browser: Browser, admin: Admin) -> None:
    browser.port = admin.port
    browser.open("administration?find=say")
    browser.button("Run").click()
    browser.shows("dialog", "Say something")
    browser.button("Run", "dialog").click()
    browser.shows("dialog .good", "begun")
    assert admin.server.logs("hello from the console")


def test_actions_are_told_what_they_need(browser: Browser, admin: Admin) -> None:
    browser.port = admin.port
    browser.open("administration?find=greet")
    browser.button("Run").click()
    browser.type("dialog input[name=whom]", "<b>Ada</b> & Bo")
    assert browser.inaccessible(always=True) == []
    browser.keys("\ue007")  # Enter
    browser.shows("dialog .good", "begun")
    assert admin.server.logs("hello <b>Ada</b> & Bo, how do you do")


def test_actions_of_one_kind_are_told_apart(browser: Browser, admin: Admin) -> None:
    browser.port = admin.port
    browser.open("actions?find=admin")
    browser.shows(".found", "2 of ")
    assert browser.text("tr[data-id]").startswith("admin greet")
    browser.find("tr[data-id]").click()
    browser.shows("aside .options", "RequiredParameter whom")


def test_what_one_may_not_do_is_there_and_says_why(browser: Browser, tmp_path: Path) -> None:
    with running_admin(tmp_path, LOOK_ONLY, ACTION) as admin:
        browser.logs_are_expected = True
        browser.port = admin.port
        browser.open("administration")
        browser.shows("button[aria-disabled=true]", "Run")
        browser.until(lambda: browser.count("button[aria-disabled=true]") >= 5)
        minidump = browser.button("Minidump")
        browser.until(lambda: "entitlement does not allow it" in str(minidump.accessible_name))
        minidump.click()
        assert browser.count("dialog") == 0
        assert admin.ask("/amps/administrator/minidump", "POST").status == 403
        assert admin.ask("/console/may.json?paths=/amps/instance/name%0A/amps").json == {
            "/amps/instance/name": True,
            "/amps": True,
        }


def test_the_console_is_entitled(tmp_path: Path) -> None:
    section = LOOK_ONLY.replace("|^/console", "")
    with running_admin(tmp_path, section) as admin:
        for path in ("session.json", "may.json", "0/js/main.js"):
            reply = admin.ask(f"/console/{path}")
            assert reply.status == 403
            assert "entitlement does not allow it" in reply.text


def test_a_server_that_was_away_is_found_again(browser: Browser, tmp_path: Path) -> None:
    browser.logs_are_expected = True  # browsers log that they cannot connect
    with running_admin(tmp_path) as admin:
        browser.port = admin.port
        with admin.server.log_on("before"):
            browser.open("clients")
            browser.shows("[role=grid]", "before")
        text = (tmp_path / "config.xml").read_text()
    browser.shows(".notice", "The server has been unavailable since")
    browser.shows(".standing", "not connected")
    with (
        running_configuration(tmp_path, text, admin.server.port) as server,
        server.log_on("after"),
    ):
        browser.shows(".dot.live")
        browser.shows("[role=grid]", "after")
        assert "before" not in browser.text("[role=grid]")
        browser.until(lambda: browser.run("return document.querySelector('.notice').hidden"))
