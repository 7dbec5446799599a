"""The dashboard in a real browser, on a real server."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.pages.conftest import Traffic, served
from tests.serving.conftest import Clock, listening

from depsue.pages.dashboard import Dashboard
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.settings import STORE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
PATIENCE = 120_000
"""Milliseconds, for machines that are busy."""
KEYS = itertools.count()
"""Of requests to the server that runs by itself: what it draws hangs on them."""
SPRING = "/campaigns/spring"
PAGES = (
    "/",
    SPRING,
    "/campaigns/summer",
    f"{SPRING}/plan",
    "/campaigns/easter/plan",
    f"{SPRING}/stop",
    f"{SPRING}/certificates/1-1",
    "/campaigns/winter/certificates/1-1",
    "/campaigns/nothing",
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


@dataclass(frozen=True)
class Server:
    """A server that runs: where, and an admin's token."""

    url: str
    token: str

    def call(self, path: str, body: Any = None) -> Any:
        """JSON there and back."""
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"authorization": f"Bearer {self.token}"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def decide(self, count: int) -> None:
        """Decisions with rewards; then wait until the monitor has seen some."""
        context = self.call("/v1/context")["context"]
        asked = {"decisions": [{"context": context, "key": f"{next(KEYS)}"} for _ in range(count)]}
        made = self.call("/v1/decide/batch", asked)["decisions"]
        earned = [
            {"decision": one["decision"], "reward": float(k % 3 == 0)} for k, one in enumerate(made)
        ]
        self.call("/v1/reward/batch", {"rewards": earned})
        while not self.call(f"{SPRING}.json")["live"]["values"]:
            time.sleep(0.2)


@pytest.fixture(scope="module")
def server(made_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = Path(shutil.copytree(made_home, tmp_path_factory.mktemp("served") / "campaigns"))
    token = Access(home).add("admin", "ana")
    command = [sys.executable, "-m", "depsue", "serve", "spring", "--home", str(home)]
    command += ["--port", "0", "--wait", "1", "--holdout", "0.2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        try:
            url = json.loads(process.stderr.readline())["url"]
            made = Server(url.rstrip("/"), token)
            _until_ready(made)
            yield made
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _until_ready(server: Server) -> None:
    """Connections wait in the socket's queue until it answers."""
    with urllib.request.urlopen(f"{server.url}/readyz", timeout=60) as answer:
        assert answer.status == 200


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        expect.set_options(timeout=PATIENCE)
        yield found
        found.close()


@pytest.fixture
def wrong() -> Iterator[list[str]]:
    """What the pages did that they must not: errors on the console, requests to other hosts."""
    found: list[str] = []
    yield found
    assert found == []


def opened(browser: Browser, server: Server, wrong: list[str], **more: Any) -> Page:
    """A page that is logged in."""
    context: BrowserContext = browser.new_context(base_url=server.url, **more)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if _own(asked.url, server) else wrong.append(asked.url))
    page.goto("/")
    page.get_by_label("token").fill(server.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Campaigns")
    return page


def _own(url: str, server: Server) -> bool:
    return url.startswith((f"{server.url}/", "data:", "blob:"))


@pytest.fixture
def page(browser: Browser, server: Server, wrong: list[str]) -> Iterator[Page]:
    found = opened(browser, server, wrong)
    yield found
    found.context.close()


def fits(page: Page) -> bool:
    """Whether nothing makes the page scroll sideways."""
    return bool(
        page.evaluate(
            "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    )


def drawn(page: Page) -> None:
    """Wait until every figure of the page is drawn, as wide as its place, and said in words."""
    page.wait_for_function(
        """() => [...document.querySelectorAll("figure.plot .drawn")].every((place) => {
            const box = place.querySelector("svg.main-svg")?.getBoundingClientRect();
            const fits = box && Math.abs(box.width - place.clientWidth) <= 1 && box.height > 100;
            return fits && /[0-9]/.test(place.getAttribute("aria-label"));
        })"""
    )


def test_login_and_logout(browser: Browser, server: Server) -> None:
    page = browser.new_context(base_url=server.url).new_page()
    page.goto(SPRING)
    expect(page).to_have_url(re.compile("/login"))
    expect(page.get_by_label("token")).to_be_focused()
    page.keyboard.type("guessed")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That is not the token of an admin.")
    page.get_by_label("token").fill(server.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Campaign spring")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    page.goto(SPRING)
    expect(page).to_have_url(re.compile("/login"))
    page.context.close()


def test_from_the_overview_to_a_certificate_and_verify(page: Page, server: Server) -> None:
    server.decide(300)
    page.get_by_role("link", name="spring", exact=True).click()
    drawn(page)
    assert page.locator("figure.plot").count() == 5
    page.get_by_text("Value as a table").first.click()
    expect(page.get_by_role("region", name="Value as a table").first).to_be_visible()
    page.get_by_role("link", name="see and verify the certificate of round 1").click()
    drawn(page)
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("status")).to_contain_text("Equal: data, folds, policy")
    page.get_by_text("The certificate as it was written").click()
    expect(page.locator("pre")).to_contain_text('"kind": "strict"')


def test_the_live_part_stays_fresh_by_itself(page: Page, server: Server) -> None:
    server.decide(100)
    page.goto(SPRING)
    drawn(page)
    page.evaluate("window.same = true")
    page.get_by_text("Novelty as a table").first.click()
    before = page.locator("#items p").first.inner_text()
    server.decide(200)
    expect(page.locator("#items p").first).not_to_have_text(before)
    drawn(page)
    assert page.evaluate("window.same") is True  # not loaded again
    expect(page.get_by_role("region", name="Novelty as a table").first).to_be_visible()
    page.get_by_role("link", name="Stop refreshing").click()
    expect(page.get_by_role("link", name="Refresh it by itself")).to_be_visible()
    assert page.locator("body").get_attribute("data-refresh") is None


def test_stop_and_resume_by_keyboard_alone(page: Page) -> None:
    page.goto(SPRING)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    tab_to(page, "Stop the policy…")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Stop the policy")
    page.get_by_label("reason").focus()
    page.keyboard.type("a drill")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("bo")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Are you sure?")).to_be_visible()
    tab_to(page, "Yes, stop it")
    page.keyboard.press("Enter")
    expect(page.locator("#stands")).to_contain_text("bo stopped the new policy. Why: a drill")
    expect(page.locator("#stands .state")).to_have_text("Stopped: current policy serving")
    tab_to(page, "Resume the policy…")
    page.keyboard.press("Enter")
    page.get_by_label("reason").fill("it was a drill")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="No, go back").click()
    expect(page.locator("#stands .state")).to_have_text("Stopped: current policy serving")
    page.get_by_role("link", name="Resume the policy…").click()
    page.get_by_label("reason").fill("it was a drill")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Yes, resume it").click()
    expect(page.get_by_role("link", name="Stop the policy…")).to_be_visible()
    events = page.get_by_role("region", name="stops and resumptions")
    expect(events).to_contain_text("it was a drill")
    expect(events).to_contain_text("a drill (by hand)")


def tab_to(page: Page, name: str) -> None:
    """Press Tab until something of that name has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if name in str(page.evaluate("document.activeElement.textContent")):
            return
    raise AssertionError(f"{name} cannot be reached with the keyboard")


def test_plan_the_next_round(page: Page, wrong: list[str]) -> None:
    page.goto("/campaigns/easter")
    page.get_by_role("link", name="Plan round 1").click()
    page.get_by_label("floor").fill("2")
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_role("alert")).to_contain_text("the floor must lie in (0, 1]")
    assert len(wrong) == 1 and "422" in wrong.pop()  # the console tells of the refusal
    page.get_by_label("floor").fill("0.9")
    page.get_by_label("objective").select_option("most novelty")
    page.get_by_role("button", name="Plan").click()
    expect(page.get_by_text("Planning since")).to_be_visible()
    expect(page.get_by_role("heading", name="The pick")).to_be_visible()
    drawn(page)
    expect(page.locator("tr.picked")).to_have_count(1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_phone(browser: Browser, server: Server, scheme: str) -> None:
    refused: list[str] = []
    page = opened(
        browser, server, refused, viewport={"width": 375, "height": 700}, color_scheme=scheme
    )
    server.decide(100)
    for path in PAGES:
        page.goto(path)
        if page.locator("figure.plot").count():
            drawn(page)
        assert fits(page), path
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        assert fits(page), f"{path}, unfolded"
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    assert dark == (scheme == "dark")
    missing = [said for said in refused if "404" not in said]  # the page that is not there
    assert missing == [] and len(refused) == 1
    page.context.close()


def test_the_page_through_a_fault_that_begins_late(
    browser: Browser, home: Path, clock: Clock, ticks: Clock, wrong: list[str]
) -> None:
    """Waiting, Healthy, Watch, Stopped, and Not watched, as a reader sees them."""
    service = served(home, "spring", clock, ticks)
    token = Access(home).add("admin", "ana")
    access = Access(home)
    with listening(App(service, access, pages=Dashboard(service, access))) as port:
        traffic = Traffic(service, clock)
        page = opened(browser, Server(f"http://127.0.0.1:{port}", token), wrong)
        stands, decider = page.locator("#stands"), page.locator("#stands .first")

        def seen() -> str:
            page.goto(f"{SPRING}?live=off")
            return stands.locator(".state").inner_text()

        assert seen() == "Waiting for data"
        expect(decider).to_contain_text("The certified policy of round 1 decides since")
        expect(stands).to_contain_text("No decision was made yet.")
        for _ in range(4):
            traffic.come(700)
        assert seen() == "Healthy"
        expect(stands).to_contain_text("Of the last 1,000 decisions, the deployed policy made")
        expect(page.locator("#live")).to_contain_text("Rewards are those of the learn and select")
        states = ["Healthy"]
        for _ in range(100):
            traffic.come(30, policy=0.3)
            states.append(seen())
            if states[-1] == "Watch":
                expect(decider).to_contain_text("The certified policy of round 1 decides since")
            if states[-1].startswith("Stopped"):
                break
        assert list(dict.fromkeys(states)) == [
            "Healthy",
            "Watch",
            "Stopped: current policy serving",
        ]
        expect(decider).to_contain_text("Your current policy (pi0) decides since")
        expect(decider).to_contain_text("the monitor stopped the new policy. Why: reward, by")
        for _ in range(2):
            traffic.come(500)
        seen()
        expect(stands).to_contain_text("in its place made 1,000. None showed a new item.")
        (stop,) = service.status.stops
        service.resume_policy([stop.id], "mended", "bo")
        traffic.come(300)
        assert seen() in ("Watch", "Healthy")  # the mean of the round is still below the floor
        expect(decider).to_contain_text("The certified policy of round 1 decides since")
        store = home / "spring" / STORE
        store.rename(store.with_name("moved.db"))
        ticks.advance(31)
        service.turn()
        assert seen() == "Not watched: current policy serving"
        expect(decider).to_contain_text("Your current policy (pi0) decides since")
        expect(stands).to_contain_text("The store of decisions cannot be read")
        store.with_name("moved.db").rename(store)
        service.turn()
        page.context.close()


def test_without_scripts_everything_can_be_read_and_done(
    browser: Browser, server: Server, wrong: list[str]
) -> None:
    server.decide(100)
    page = opened(browser, server, wrong, java_script_enabled=False)
    page.goto(SPRING)
    figure = page.locator("figure.plot").first
    expect(figure.locator(".drawn p")).to_contain_text(
        "Mean reward of learn and select rows over time"
    )
    page.get_by_text("Value as a table").first.click()
    expect(figure.get_by_role("region")).to_be_visible()
    page.get_by_role("link", name="see and verify the certificate of round 1").click()
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_role("status")).to_contain_text("Equal")
    page.context.close()
