"""Stop and resume, with a confirmation between."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pages.browser import Browser
from tests.pages.conftest import HOSTILE, decided, served
from tests.serving.conftest import Clock

from depsue.campaigns import story_of
from depsue.pages.campaign import campaign_page
from depsue.serving.service import Service

SPRING = "/campaigns/spring"


def test_a_stop_is_confirmed_first(visit: Browser, service: Service, clock: Clock) -> None:
    decided(service, clock, 50)
    assert f'href="{SPRING}/stop"' in visit.get(SPRING).text
    form = visit.get(f"{SPRING}/stop").text
    assert 'name="reason"' in form and 'value="ana"' in form
    asked = visit.post(f"{SPRING}/stop", {"reason": HOSTILE, "by": "bo"})
    assert asked.status == 200 and "Are you sure?" in asked.text
    assert "&lt;script&gt;" in asked.text and "<script>alert" not in asked.text
    assert not service.stopped
    done = visit.post(f"{SPRING}/stop", {"reason": HOSTILE, "by": "bo", "sure": "yes"})
    assert (done.status, done.to) == (303, f"{SPRING}#monitor")
    assert service.stopped == f"{HOSTILE} (by hand)"
    page = visit.get(SPRING)
    assert "bo stopped the new policy. Why: &lt;script&gt;" in page.text
    assert "<script>alert" not in page.text
    assert f'href="{SPRING}/resume"' in page.text and f'href="{SPRING}/stop"' not in page.text
    assert visit.get("/index.json").json["campaigns"][0]["state"] == "stopped"


def test_a_resumption_is_confirmed_first_and_both_are_recorded(
    visit: Browser, service: Service, clock: Clock
) -> None:
    decided(service, clock, 10)
    service.stop_policy("it fell", "the monitor")
    (shown,) = visit.get(f"{SPRING}/resume.json").json["stops"]
    form = {"reason": "mended", "by": "bo", "stops": shown}
    asked = visit.post(f"{SPRING}/resume", form)
    assert "Are you sure?" in asked.text and service.stopped
    assert f'name="stops" value="{shown}"' in asked.text
    visit.post(f"{SPRING}/resume", {**form, "sure": "yes"})
    assert not service.stopped
    decided(service, clock, 10)
    events = visit.get(f"{SPRING}.json").json["live"]["events"]
    assert [(one["kind"], one["reason"], one["by"]) for one in events] == [
        ("watch", "epoch 2", "depsue"),
        ("resume", "mended", "bo"),
        ("stop", "it fell", "the monitor"),
        ("watch", "epoch 1", "depsue"),
    ]
    assert 'value="bo"' in visit.get(f"{SPRING}/stop").text  # who acted is remembered


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"by": "bo"}, "a reason is recorded"),
        ({"reason": "  ", "by": "bo"}, "a reason is recorded"),
        ({"reason": "x" * 201, "by": "bo"}, "a reason is recorded"),
        ({"reason": "two\nlines", "by": "bo"}, "a reason is recorded"),
        ({"reason": "it fell", "by": " "}, "it is recorded who"),
    ],
)
def test_what_is_recorded_must_say_something(
    visit: Browser, service: Service, fields: dict[str, str], said: str
) -> None:
    refusal = visit.post(f"{SPRING}/stop", {**fields, "sure": "yes"})
    assert refusal.status == 422 and said in refusal.text and 'role="alert"' in refusal.text
    assert not service.stopped


def test_nothing_to_resume_and_nothing_to_stop(visit: Browser, service: Service) -> None:
    sure = {"reason": "why", "by": "bo", "sure": "yes"}
    visit.get(f"{SPRING}/stop")
    assert "There is nothing to resume now" in visit.get(f"{SPRING}/resume").text
    assert visit.post(f"{SPRING}/resume", sure).status == 409
    service.stop_policy("it fell", "the monitor")
    assert visit.post(f"{SPRING}/stop", sure).status == 409
    assert service.stopped == "it fell"


def test_what_is_not_served_here_is_not_stopped_here(visit: Browser, service: Service) -> None:
    visit.get(f"{SPRING}/stop")
    page = visit.get("/campaigns/summer").text
    assert "not served here" in page and "/campaigns/summer/stop" not in page
    sure = {"reason": "why", "by": "bo", "sure": "yes"}
    assert visit.post("/campaigns/summer/stop", sure).status == 409
    assert not service.stopped


def test_a_resumption_that_is_recorded_nowhere_does_not_count(
    visit: Browser, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from depsue.serving.stops import StopFile
    from depsue.serving.store import Store, StoreGone

    def gone(*given: object) -> None:
        raise StoreGone("the store of decisions must answer", found="no answer", cure="wait")

    visit.get(f"{SPRING}/resume")
    stop = service.stop_policy("it fell", "the monitor")
    monkeypatch.setattr(Store, "add_events", gone)
    monkeypatch.setattr(StopFile, "add", gone)
    sure = {"reason": "why", "by": "bo", "sure": "yes"}
    found = visit.post(f"{SPRING}/resume", {**sure, "stops": stop.id})
    assert found.status == 503 and "A resume is recorded before it counts" in found.text
    assert service.stopped


def test_a_resume_names_only_what_its_author_saw(visit: Browser, service: Service) -> None:
    seen = service.stop_policy("it fell", "the monitor")
    sure = {"reason": "why", "by": "bo", "sure": "yes"}
    assert f'value="{seen.id}"' in visit.get(f"{SPRING}/resume").text
    service.stop_policy("a complaint", "ana")
    found = visit.post(f"{SPRING}/resume", sure)
    assert found.status == 409 and "names the stops that its author saw" in found.text
    visit.post(f"{SPRING}/resume", {**sure, "stops": seen.id})
    assert service.stopped == "a complaint"


def test_margin_of_a_round_that_was_observed_is_not_counted_twice(
    home: Path, clock: Clock, ticks: Clock
) -> None:
    service = served(home, "summer", clock, ticks)
    service.start()
    try:
        decided(service, clock, 200)
        story = story_of(service.campaign)
        tiles = {one.label: one for one in campaign_page(story, service).tiles}
    finally:
        service.close()
    margin = story.promises[0].margin
    assert margin is not None
    assert tiles["margin"].figure == f"{margin:+,.0f}"
    assert tiles["margin"].what == "above the floor, observed"
    assert tiles["value in this round"].figure == "1"  # every decision earned 1
