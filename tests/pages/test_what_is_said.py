"""What pages say is what serves, and what was served."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest
from tests.pages.browser import Browser
from tests.pages.conftest import Traffic, served
from tests.serving.conftest import Clock

from depsue.campaigns.records import RoundSummary
from depsue.pages.live import live_of
from depsue.serving.account import RoundAccount
from depsue.serving.exporting import export_served
from depsue.serving.service import Service
from depsue.serving.settings import STORE, declared

SPRING = "/campaigns/spring"


def test_before_the_first_decision_it_waits_for_data(visit: Browser) -> None:
    live = visit.get(f"{SPRING}.json").json["live"]
    assert live["status"]["says"] == "Waiting for data"
    assert live["verdict"].startswith("The certified policy of round 1 decides since 2025-06-15")
    assert live["decided"] == "No decision was made yet."
    assert "The monitor has judged 0 decisions" in live["asks"]
    page = visit.get(SPRING).text
    assert "Waiting for data" in page and "Healthy" not in page
    assert 'class="stands good"' not in page
    assert "Waiting for data" in visit.get("/").text


def test_a_value_below_the_floor_is_never_beside_healthy(visit: Browser, traffic: Traffic) -> None:
    traffic.come(2000)
    before = visit.get(f"{SPRING}.json").json["live"]
    assert before["status"]["says"] == "Healthy"
    (promise,) = before["status"]["served"]["promises"]
    assert promise["value"] > promise["floor"] and promise["margin"] > 0
    margins, states = [promise["margin"]], []
    for _ in range(20):
        traffic.come(300, policy=0.6)
        live = visit.get(f"{SPRING}.json").json["live"]
        (promise,) = live["status"]["served"]["promises"]
        states.append(live["status"]["says"])
        margins.append(promise["margin"])
        if states[-1].startswith("Stopped"):
            break
        if min(promise["value"], promise["recent"]) < promise["floor"]:
            assert states[-1] == "Watch" and "below its floor" in live["asks"]
    assert states[-1] == "Stopped: current policy serving"
    assert margins[-1] < margins[0], (
        "the margin falls while each decision earns less than the floor"
    )


def test_after_a_stop_the_page_says_that_pi0_decides(visit: Browser, traffic: Traffic) -> None:
    traffic.come(700)
    traffic.service.stop_policy("a complaint", "ana")
    traffic.come(1000)
    live = visit.get(f"{SPRING}.json").json["live"]
    assert live["recent"]["counts"] == {
        "policy": 0, "holdout": 0, "fallback": 1000, "new": 0, "earlier": 0
    }  # fmt: skip
    assert live["verdict"].startswith("Your current policy (pi0) decides since ")
    assert "ana stopped the new policy. Why: a complaint." in live["verdict"]
    assert live["decided"] == (
        "Of the last 1,000 decisions, the current policy (pi0) in its place made 1,000. None "
        "showed a new item."
    )
    before = "80% of the traffic is on the policy, 20% on pi0 (the holdout)."
    stopped = (
        "All of the traffic is on your current policy (pi0). Once the new policy decides again, it "
        "has 80% of the traffic again, 20% on pi0 (the holdout)."
    )
    assert live["traffic"] == stopped and before not in visit.get(SPRING).text
    assert stopped in visit.get(f"{SPRING}/share").text
    for path in (SPRING, "/"):
        page = visit.get(path).text
        assert live["verdict"] in page and live["decided"] in page
        assert "policy of round 1 decides" not in page and "serves" not in page.split("<h2")[0]
    tiles = {tile["label"]: tile for tile in visit.get(f"{SPRING}.json").json["tiles"]}
    assert tiles["new items shown"]["figure"] == "0.0%"
    assert live["values"][-1]["novelty"] == 0.0


def test_no_page_says_that_traffic_is_on_a_policy_that_does_not_decide(
    visit: Browser, traffic: Traffic
) -> None:
    def said() -> str:
        words = str(visit.get(f"{SPRING}.json").json["live"]["traffic"])
        assert words in visit.get(SPRING).text
        return words

    service = traffic.service
    assert said().startswith("80% of the traffic is on the policy, 20% on pi0 (the holdout).")
    stop = service.stop_policy("a complaint", "ana")
    now = "All of the traffic is on your current policy (pi0). Once the new policy decides again,"
    assert said().startswith(now)
    service.resume_policy([stop.id], "mended", "ana")
    assert said().startswith("80% of the traffic is on the policy")
    service.change_share(0.0, "look first", "ana")
    traffic.come(1500)
    live = visit.get(f"{SPRING}.json").json["live"]
    assert "goes on deciding" not in live["asks"]
    service.traffic.unread = "the share of traffic was not read yet"
    assert said() == "None of the traffic is on the policy: the share of traffic was not read yet."


def test_after_a_rollback_nothing_is_said_of_a_policy_that_is_gone(
    visit: Browser, traffic: Traffic
) -> None:
    """What the earlier policy decided is the earlier policy's; there is none to resume."""
    traffic.come(600)
    service = traffic.service
    service.campaign.rollback(0)
    service.turn()
    live = visit.get(f"{SPRING}.json").json["live"]
    made = live["recent"]["counts"]
    assert made["policy"] == 0 and made["earlier"] + made["holdout"] == 600
    assert f"a policy that was deployed before made {made['earlier']}" in live["decided"]
    assert live["verdict"].startswith("Your current policy (pi0) decides")
    traffic.come(400)
    recent = visit.get(f"{SPRING}.json").json["live"]
    assert recent["recent"]["counts"]["policy"] == 400
    assert "the current policy (pi0) made 400" in recent["decided"]
    counts = recent["status"]["served"]["counts"]
    assert counts["policy"] + counts["holdout"] + counts["earlier"] in (400, 1000)
    service.stop_policy("a doubt", "ana")
    live = visit.get(f"{SPRING}.json").json["live"]
    assert "it is what is deployed. A stop by ana stands" in live["verdict"]
    assert "no new policy to resume" in live["asks"] and "resumes the new one" not in live["asks"]


def test_what_was_not_read_yet_is_not_said_to_be_none(
    home: Path, clock: Clock, ticks: Clock
) -> None:
    """A service that starts while the store is gone knows no count, no stop and no share."""
    service = served(home, "spring", clock, ticks)
    service.start()
    Traffic(service, clock).come(300)
    service.close()
    store = home / "spring" / STORE
    aside = store.with_name("moved.db")
    again = served(home, "spring", clock, ticks)
    store.rename(aside)
    live = live_of(again)
    assert live.status.served.read_at is None and live.events == ()
    assert "not read yet" in live.events_unread
    assert live.traffic.startswith("None of the traffic is on the policy: ")
    aside.rename(store)


def test_the_margin_is_the_sum_over_what_was_really_served(traffic: Traffic) -> None:
    service = traffic.service
    earned = traffic.come(800)
    service.stop_policy("a complaint", "ana")
    earned |= traffic.come(400, pi0=0.5)
    account = service.account
    assert account.counts.all == 1200 and account.counts.fallback == 400
    (promise,) = account.promises
    assert promise.floor == pytest.approx(0.95 * first_mean(service))
    mean = sum(earned.values()) / len(earned)
    # the mean of learn and select rows stands for all: within three standard errors of it
    error = (mean * (1 - mean) / int(account.read.sum())) ** 0.5
    margin = 1200 * (mean - 0.95 * first_mean(service))
    assert promise.margin == pytest.approx(margin, abs=3 * 1200 * error)
    assert promise.served == 1200


def first_mean(service: Service) -> float:
    """pi0's mean reward in its first logs, as far as it may be read."""
    return service.campaign.summaries()[0].promises["reward"].mean


def test_rewards_that_are_shown_are_those_of_learn_and_select_rows(
    home: Path, clock: Clock, ticks: Clock
) -> None:
    service = served(home, "spring", clock, ticks, holdout=0.0)
    service.start()
    Traffic(service, clock).come(3000)
    service.close()
    campaign, account = service.campaign, service.account
    declared(campaign.files.folder, {"wait": 60.0}, begun=False)
    exported = export_served(campaign, None)
    seen = campaign.observe(str(exported.path), mapping=exported.mapping)
    # what the page showed of the running round is what the ledger says of it when it is over
    summary, (shown,) = RoundSummary.of(seen), account.promises
    assert summary.read == shown.read == int(account.read.sum()) == pytest.approx(1200, abs=120)
    assert shown.value == pytest.approx(summary.promises["reward"].mean)
    folds = campaign.state().inputs(3000).folds
    total = float(folds.learn.reward.sum() + folds.select.reward.sum())
    assert float(account.earned.sum()) == total
    assert folds.registration.drawn, "the ledger drew the secret, though before the rows"


def test_the_page_says_whose_rewards_it_shows(
    visit: Browser, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic.come(500)
    account = traffic.service.account
    words = f"({int(account.read.sum())} of 500 closed decisions)"
    page = visit.get(SPRING).text
    assert "Rewards are those of the learn and select rows of round 1" in page and words in page
    older = RoundAccount(account.served, traffic.service.settings, [], {}, None)
    monkeypatch.setattr(traffic.service, "account", older)
    page = visit.get(SPRING).text
    assert "No reward of round 1 is shown while it runs" in page


def test_a_store_that_cannot_be_read_is_not_watched(
    visit: Browser, traffic: Traffic, home: Path, ticks: Clock
) -> None:
    traffic.come(500)
    store = home / "spring" / STORE
    aside = store.with_name("moved.db")
    store.rename(aside)
    ticks.advance(31)
    traffic.service.turn()
    live = visit.get(f"{SPRING}.json").json["live"]
    assert live["status"]["says"] == "Not watched: current policy serving"
    assert live["verdict"].startswith("Your current policy (pi0) decides")
    assert "cannot be read" in live["decided"]
    page = visit.get(SPRING).text
    assert "The store of decisions cannot be read" in page and 'class="stands bad"' in page
    aside.rename(store)
    traffic.service.turn()
    live = visit.get(f"{SPRING}.json").json["live"]
    assert live["verdict"].startswith("The certified policy of round 1 decides since")


def test_what_is_deployed_can_no_longer_be_planned(visit: Browser) -> None:
    page = visit.get(SPRING).text
    assert f'href="{SPRING}/plan"' not in page
    words = "Round 1 is deployed, so it can no longer be planned. To plan round 2, first import"
    assert words in page
    plan = visit.get(f"{SPRING}/plan")
    assert words in plan.text and "<form class" not in plan.text
    visit.get(f"{SPRING}/stop")  # a form of the session
    assert visit.post(f"{SPRING}/plan", {"floor": "0.9"}).status == 422
    assert "has its verdict, so it can no longer be planned" in visit.get("/campaigns/winter").text
    assert 'href="/campaigns/summer/plan"' in visit.get("/campaigns/summer").text


def test_metrics_status_and_pages_agree(visit: Browser, traffic: Traffic) -> None:
    traffic.come(600)
    status = visit.get("/v1/status", accept="application/json").json
    live = visit.get(f"{SPRING}.json").json["live"]
    assert live["status"] == status
    assert visit.get("/index.json").json["campaigns"][1]["verdict"] == "" != live["verdict"]
    card = visit.get("/index.json").json["campaigns"][0]
    assert card["verdict"] == live["verdict"] and card["asks"] == live["asks"] != ""
    assert escape(live["asks"]) in visit.get("/").text
    lines = dict(
        line.rsplit(" ", 1) for line in visit.get("/metrics").text.splitlines() if line[0] != "#"
    )
    (promise,) = status["served"]["promises"]
    for name, value in (
        ("value", promise["value"]),
        ("floor", promise["floor"]),
        ("margin", promise["margin"]),
        ("served_decisions", 600),
        ("closed_decisions", status["monitor"]["judged"]),
        ("policy_decides", 1),
    ):
        assert float(lines[f"depsue_{name}"]) == value, name
