"""A certificate's page, and recomputing it."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from markupsafe import escape
from tests.pages.browser import Browser

from depsue.campaigns import Campaign, open_home, recompute
from depsue.certificates import Verification
from depsue.pages import dashboard
from depsue.progress import silent


def page_of(name: str, k: int = 1) -> str:
    return f"/campaigns/{name}/certificates/{k}-1"


def test_the_page_tells_the_verdict_and_what_it_rests_on(visit: Browser) -> None:
    found = visit.get(page_of("spring")).text
    twin = visit.get(f"{page_of('spring')}.json").json
    certificate = json.loads(twin["test"]["text"])
    assert twin["test"]["state"] == "passed"
    assert twin["certified"]["novelty"] == certificate["shares"][1]
    assert [one["promise"] for one in twin["verdicts"]] == ["reward"]
    for said in certificate["assumptions"]:
        assert escape(said) in found
    assert certificate["policy"] in found and "How far the test went as a table" in found
    assert len(twin["test"]["levels"]) == certificate["listed"] >= certificate["tested"]
    failed = visit.get(f"{page_of('winter')}.json").json
    assert (failed["test"]["state"], failed["certified"]) == ("failed", None)


@pytest.mark.parametrize("name", ["spring", "winter"])  # one that passed, one that failed
def test_verify_says_equal(visit: Browser, name: str) -> None:
    assert visit.get(f"{page_of(name)}.json").json["recomputed"] is None
    sent = visit.post(page_of(name))
    assert (sent.status, sent.to) == (303, f"{page_of(name)}#verify")
    recomputed = visit.get(f"{page_of(name)}.json").json["recomputed"]
    assert (recomputed["under_way"], recomputed["equal"]) == (False, True)
    assert "<b>Equal</b>" in visit.get(page_of(name)).text


def test_a_certificate_of_a_later_round_is_recomputed(home: Path) -> None:
    """Its rows were logged by the first round's policy, and its terms are paired with pi0."""
    summer = Campaign(open_home(home), home, "summer", by="bo")
    summer.train()
    attempt = summer.certify()
    assert (attempt.round, attempt.state) == (2, "passed")
    assert recompute(summer, 2, attempt.attempt, silent).equal
    other = Campaign(summer.ledger, home, "summer", by="bo")
    other.policy = lambda k, hash: summer.policy(1, summer.deployed(1)[-1].policy_hash)  # type: ignore[method-assign]
    differences = recompute(other, 2, attempt.attempt, silent).differences
    assert any("the policy has the hash" in one for one in differences)


def test_what_was_erased_is_named_and_is_no_difference(
    visit: Browser, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def incomplete(*given: object) -> Verification:
        return Verification((), ("3 rows of round 0 erased after the verdict (2027-03-01)",), 3)

    monkeypatch.setattr(dashboard, "recompute", incomplete)
    visit.post(page_of("spring"))
    page = visit.get(page_of("spring")).text
    assert "No difference in what is left" in page and "3 rows of round 0 erased" in page
    assert "It differs" not in page
    assert visit.get(f"{page_of('spring')}.json").json["recomputed"]["equal"] is False


def test_what_differs_is_named(visit: Browser, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def different(*given: object) -> Verification:
        return Verification(("reward: bound is 0.1, certified was <0.2>",))

    monkeypatch.setattr(dashboard, "recompute", different)
    visit.post(page_of("spring"))
    page = visit.get(page_of("spring")).text
    assert "It differs" in page and "certified was &lt;0.2&gt;" in page
    assert visit.get(f"{page_of('spring')}.json").json["recomputed"]["equal"] is False


def test_logs_that_changed_cannot_be_verified_against(visit: Browser, home: Path) -> None:
    spring = Campaign(open_home(home), home, "spring", by="bo")
    place = home / "changed.parquet"
    logs = pl.read_parquet(spring.source(spring.ledger.observations("spring")[0]))
    logs.with_columns(reward=1.0 - pl.col("reward")).write_parquet(place)
    spring.files.save_place(0, str(place))
    visit.post(page_of("spring"))
    recomputed = visit.get(f"{page_of('spring')}.json").json["recomputed"]
    assert "must be as they were observed" in recomputed["problem"] and recomputed["equal"] is None
    assert "It could not be recomputed" in visit.get(page_of("spring")).text


def test_a_test_without_a_verdict_has_nothing_to_verify(visit: Browser, home: Path) -> None:
    summer = Campaign(open_home(home), home, "summer", by="bo")
    hash = summer.train().policy_hash
    seen = summer.ledger.observations("summer")[1].data_hash
    summer.ledger.begin_read("summer", 2, data_hash=seen, policy_hash=hash, by="bo")
    page = visit.get(page_of("summer", 2)).text
    assert "there is no certificate" in page and "<button" not in page
    visit.get("/campaigns/spring/stop")
    assert visit.post(page_of("summer", 2)).status == 409


def test_a_long_one_shows_that_it_is_under_way(
    visit: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    goes_on = threading.Event()

    def slow(*given: object) -> tuple[str, ...]:
        goes_on.wait(60)
        return ()

    monkeypatch.setattr(dashboard, "recompute", slow)
    monkeypatch.setattr(dashboard, "PATIENCE", 0.0)
    try:
        visit.post(page_of("spring"))
        page = visit.get(page_of("spring")).text
        assert 'http-equiv="refresh"' in page and "Recomputing since" in page
        other = visit.post(page_of("winter"))
        assert other.status == 409 and "One at a time" in other.text
    finally:
        goes_on.set()
