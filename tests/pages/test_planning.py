"""Planning the next round: the form, one at a time, progress, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pages.browser import Browser
from tests.pages.conftest import explore

from depsue import SyntheticSettings, synthetic_world
from depsue.campaigns import Campaign, open_home
from depsue.data.writing import write_logs
from depsue.errors import DepsueError
from depsue.pages import dashboard
from depsue.pages.campaign import form_of, plan_page, planned, settings_of
from depsue.pages.dashboard import Dashboard
from depsue.pages.plan_report import PlanResult
from depsue.progress import silent
from depsue.promises import Floor, Promise

EASTER, SUMMER = "/campaigns/easter/plan", "/campaigns/summer/plan"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Plans that wait until they are let go on."""
    goes_on = threading.Event()

    def waits(campaign: Campaign, settings: Any, watch: Any) -> PlanResult:
        watch("reward model", 1, 4, "loss <0.5>")
        assert goes_on.wait(60)
        return PlanResult("Novelty 1%", False, 9, (), (), 0.0, None, (), (), (), (), "")

    monkeypatch.setattr(dashboard, "planned", waits)
    yield goes_on
    goes_on.set()


def test_a_plan_of_pi0s_logs_has_a_frontier_and_a_pick(visit: Browser, pages: Dashboard) -> None:
    assert 'id="floor"' in visit.get(EASTER).text
    sent = visit.post(EASTER, {"floor": "0.9", "objective": "balanced"})
    assert (sent.status, sent.to) == (303, EASTER)
    job = pages.plans.of("easter")
    assert job is not None and job.done.wait(120)
    twin = visit.get(f"{EASTER}.json").json
    assert twin["form"] == {
        "floor": "0.9",
        "delta": "0.05",
        "objective": "balanced",
        "max_novelty": "0.5",
    }
    found = twin["result"]
    assert (twin["failed"], found["rows"]) == ("", 4000)
    assert found["floor"] == pytest.approx(0.9)
    (pick,) = [one for one in found["frontier"] if one["picked"]]
    assert found["pick"].startswith(f"Novelty {pick['novelty']:.1%}")
    novelties = [one["novelty"] for one in found["frontier"]]
    assert novelties == sorted(novelties) and found["certain"] == pytest.approx(0.1)
    assert len(found["cells"]) == len(novelties)
    page = visit.get(EASTER).text
    assert "The frontier as a table" in page and 'class="picked"' in page
    assert 'value="0.9"' in page and "http-equiv" not in page
    # the campaign itself is as it was
    assert (
        visit.get("/campaigns/easter.json")
        .json["words"]["promises"][0]
        .startswith("reward: at least 95%")
    )


def test_a_later_round_has_a_frontier_too(home: Path) -> None:
    summer = Campaign(open_home(home), home, "summer", by="bo")
    page = plan_page(summer, None, running=None)
    assert page.possible and page.logs[0].startswith("Planned for round 2")
    bold = settings_of(summer.settings.explore, {"objective": "most novelty"})
    found = planned(summer, bold, silent)
    (pick,) = [dot for dot in found.frontier if dot.picked]
    assert found.pick.startswith(f"Novelty {pick.novelty:.1%}") and found.times
    assert "the bound counts new items by their own rewards" in found.note
    assert found.enough and pick.novelty > found.certain
    assert not summer.ledger.candidates("summer")[1:], "nothing is recorded"
    again = Campaign(summer.ledger, home, "summer", by="bo")
    harsh = settings_of(again.settings.explore, {"floor": "1", "delta": "0.000001"})
    less = planned(again, harsh, silent)
    assert again.settings == summer.settings, "a plan changes nothing of its campaign"
    (end,) = [dot.novelty for dot in less.frontier if dot.picked]
    assert end < pick.novelty


def test_progress_is_shown_and_plans_are_made_one_at_a_time(
    visit: Browser, pages: Dashboard, slow: threading.Event
) -> None:
    visit.post(EASTER)
    page = visit.get(EASTER).text
    assert 'http-equiv="refresh"' in page and "<form class" not in page
    assert "reward model" in page and "loss &lt;0.5&gt;" in page and 'value="0.250"' in page
    twin = visit.get(f"{EASTER}.json").json
    assert twin["tasks"] == [{"what": "reward model", "share": 0.25, "words": "loss <0.5>"}]
    other = visit.get(SUMMER).text
    assert "Under way: a plan of easter" in other and 'http-equiv="refresh"' in other
    refusal = visit.post(SUMMER)
    assert refusal.status == 422
    assert "One at a time" in refusal.text
    slow.set()
    job = pages.plans.of("easter")
    assert job is not None and job.done.wait(60)
    assert visit.post(SUMMER).status == 303


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("floor", "much", "the floor must be a number"),
        ("floor", "1.5", "the floor must lie in (0, 1]"),
        ("floor", "-1", "a floor must be a positive number"),
        ("floor", "nan", "a floor must be a positive number"),
        ("delta", "0", "delta must lie in (0, 1)"),
        ("objective", "best", "must be a number"),
        ("objective", "-1", "the objective must be"),
        ("max_novelty", "2", "max_novelty must lie in (0, 1]"),
        ("max_novelty", "1", "the most novelty must lie in (0, 1)"),
    ],
)
def test_what_cannot_be_planned_is_refused_at_once(
    visit: Browser, pages: Dashboard, slow: threading.Event, field: str, value: str, said: str
) -> None:
    refusal = visit.post(EASTER, {field: value})
    assert refusal.status == 422
    assert said in refusal.text and 'role="alert"' in refusal.text
    assert f'value="{value}"' in refusal.text  # what was typed is still there
    assert visit.get(f"{EASTER}.json").json["under_way"] is False


def test_a_plan_that_fails_says_why(visit: Browser, pages: Dashboard, home: Path) -> None:
    easter = Campaign(open_home(home), home, "easter", by="bo")
    easter.files.save_place(0, str(home / "gone.parquet"))
    visit.post(EASTER)
    job = pages.plans.of("easter")
    assert job is not None and job.done.wait(60)
    page = visit.get(EASTER).text
    assert "It came to nothing: the logs of round 0 must be where they were observed" in page


def test_a_campaign_that_is_over_is_not_planned(visit: Browser, home: Path) -> None:
    summer = Campaign(open_home(home), home, "summer", by="bo")
    summer.rollback()
    logs = home / "summer-2.parquet"
    world = synthetic_world(SyntheticSettings(users=80, supported=12, novel=4, d=3), seed=1)
    write_logs(world.deploy(summer.pi0_today(1), 2000, round=2), logs)
    summer.observe(logs)
    page = visit.get(SUMMER).text
    assert "The campaign is over" in page and "<button>Plan" not in page
    visit.get("/campaigns/spring/stop")
    assert visit.post(SUMMER).status == 422


def test_the_form_begins_as_the_campaign_has_it() -> None:
    assert form_of(explore(objective=0.5, max_novelty=0.3, delta=0.1).explore) == {
        "floor": "0.95",
        "delta": "0.1",
        "objective": "0.5",
        "max_novelty": "0.3",
    }
    several = explore(promises=(Promise(Floor(0.9), "a"), Promise(Floor(None, 0.1), "b"))).explore
    assert form_of(several)["floor"] == ""
    kept = settings_of(several, {"floor": "0.5", "delta": "0.2"})
    assert kept.promises == several.promises and kept.delta == 0.2
    per_round = explore(per="campaign", delta=0.1).explore
    assert settings_of(per_round, {}).delta_of_deployment == per_round.delta_of_deployment == 0.05
    with pytest.raises(DepsueError, match="delta must be a number"):
        settings_of(several, {"delta": "none"})
