"""Who may see the pages, and which forms are taken."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.pages.browser import Browser

from depsue.pages import sessions
from depsue.pages.dashboard import Dashboard
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.service import Service

STOP = "/campaigns/spring/stop"
SURE = {"reason": "a test", "by": "bo", "sure": "yes"}
Guarded = tuple[App, str]


def stopped(service: Service) -> str:
    """Why pi0 decides."""
    return service.stopped


@pytest.fixture
def logged_in(guarded: Guarded) -> Browser:
    app, token = guarded
    found = Browser(app)
    found.login(token)
    found.get("/")
    return found


def test_pages_ask_for_a_login_and_lead_back(guarded: Guarded) -> None:
    app, token = guarded
    browser = Browser(app)
    asked = browser.get("/campaigns/spring")
    assert (asked.status, asked.to) == (303, "/login?next=%2Fcampaigns%2Fspring")
    assert 'value="/campaigns/spring"' in browser.get(asked.to).text
    entered = browser.post("/login", {"token": token, "next": "/campaigns/spring"})
    assert (entered.status, entered.to) == (303, "/campaigns/spring")
    assert browser.get(entered.to).status == 200
    assert browser.get("/login?next=/campaigns/summer").to == "/campaigns/summer"


def test_the_cookie_is_for_this_server_alone(
    guarded: Guarded, service: Service, home: Path
) -> None:
    app, token = guarded

    def rules(browser: Browser) -> set[str]:
        session, *rules = browser.login(token).headers["set-cookie"].lower().split("; ")
        assert token.lower() not in session
        return set(rules)

    plain = {"path=/", "max-age=43200", "httponly", "samesite=strict"}
    assert rules(Browser(app)) == plain
    assert rules(Browser(app, x_forwarded_proto="https")) == plain | {"secure"}
    made = App(service, Access(home), pages=Dashboard(service, Access(home), secure=True))
    assert rules(Browser(made)) == plain | {"secure"}


@pytest.mark.parametrize("path", ["/index.json", "/campaigns/spring.json", "/campaigns/spring"])
def test_programs_bring_a_token(guarded: Guarded, path: str) -> None:
    app, token = guarded
    program = Browser(app, accept="application/json")
    refusal = program.get(path)
    assert refusal.status == 401 and "role admin" in refusal.json["error"]
    assert program.get(path, authorization=f"Bearer {token}").status == 200
    assert program.get(path, authorization="Bearer another").status == 401


def test_only_admins_enter(guarded: Guarded, access: Access, home: Path) -> None:
    app, _ = guarded
    lesser = Access(home).add("decide", "shop")
    access.refresh()
    for token in (lesser, "guessed", "", "ü" * 300):
        browser = Browser(app)
        refusal = browser.login(token)
        assert refusal.status == 401 and "not the token of an admin" in refusal.text
        assert not browser.cookies
        assert browser.get("/", authorization=f"Bearer {lesser}").status == 303


@pytest.mark.parametrize(
    "then", ["//evil.example/", "https://evil.example", "/\\evil", "", "/a\nb"]
)
def test_a_login_does_not_lead_elsewhere(guarded: Guarded, then: str) -> None:
    app, token = guarded
    assert Browser(app).post("/login", {"token": token, "next": then}).to == "/"


def test_logout_ends_the_session(logged_in: Browser) -> None:
    kept = dict(logged_in.cookies)
    assert logged_in.get("/logout").to == "/"  # a link does nothing
    assert logged_in.get("/").status == 200
    assert logged_in.post("/logout").to == "/login"
    assert logged_in.get("/").to.startswith("/login")
    logged_in.cookies.update(kept)
    assert logged_in.get("/").to.startswith("/login")


def test_a_session_ends_with_its_token_and_in_time(
    logged_in: Browser,
    home: Path,
    guarded: Guarded,
    access: Access,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, token = guarded
    other = Browser(app)
    other.login(token)
    later = time.time() + sessions.LASTS + 1
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: later)
        assert other.get("/").status == 303
    assert other.get("/").status == 303  # it is gone
    assert logged_in.get("/").status == 200
    Access(home).remove("ana")
    access.refresh()
    assert logged_in.get("/").status == 303


def test_sessions_are_limited(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    app, token = guarded
    monkeypatch.setattr(sessions, "MOST", 2)
    browsers = [Browser(app) for _ in range(3)]
    for one in browsers:
        one.login(token)
    assert [one.get("/").status for one in browsers] == [303, 200, 200]


def test_a_form_of_another_session_is_refused(
    logged_in: Browser, guarded: Guarded, service: Service
) -> None:
    other = Browser(guarded[0])
    other.login(guarded[1])
    other.get("/")
    assert other.csrf != logged_in.csrf
    for wrong in ("", "guessed", other.csrf, "ü"):
        refusal = logged_in.post(STOP, SURE, csrf=wrong)
        assert refusal.status == 403 and "A form must be of this session" in refusal.text
    assert logged_in.post("/logout", csrf="").status == 403
    assert not stopped(service)
    assert logged_in.post(STOP, SURE).status == 303
    assert stopped(service) == "a test (by hand)"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "origin": "http://localhost"},
    ],
)
def test_a_form_from_another_site_is_refused(
    logged_in: Browser, visit: Browser, service: Service, headers: dict[str, str]
) -> None:
    visit.get(STOP)
    for browser in (logged_in, visit):
        assert browser.post(STOP, SURE, **headers).status == 403
        assert not service.stopped
    assert logged_in.post("/login", {"token": "x"}, **headers).status == 403


def test_forms_of_ones_own_are_taken(logged_in: Browser) -> None:
    own = {"origin": "http://localhost", "sec_fetch_site": "same-origin"}
    assert logged_in.post(STOP, SURE, **own).status == 303


def test_without_tokens_forms_still_carry_a_secret(visit: Browser) -> None:
    assert "Log out" not in visit.get("/").text
    assert visit.post(STOP, SURE, csrf="").status == 403
    assert visit.post(STOP, SURE).status == 303
    assert visit.get("/", host="evil.example").status == 403  # a name that points here


def test_who_logged_out_is_led_to_the_login_by_a_form_too(guarded: Guarded) -> None:
    assert Browser(guarded[0]).post(STOP, SURE).to == "/login?next=%2Fcampaigns%2Fspring%2Fstop"
    assert Browser(guarded[0], accept="*/*").post(STOP, SURE).status == 401


def test_only_pages_are_sent_to(visit: Browser) -> None:
    visit.get(STOP)
    assert visit.post("/campaigns/spring.json").status == 405
    assert visit.call("PUT", "/", b"", {}).status == 405
