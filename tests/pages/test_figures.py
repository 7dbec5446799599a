"""What is drawn, said and tabled; work in the background; what is not counted twice."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pages.conftest import decided

from depsue.campaigns import Campaign, open_home
from depsue.errors import ConfigError
from depsue.pages.campaign import campaign_page
from depsue.pages.certificate import CertificatePage
from depsue.pages.figures import live_figures, round_figures
from depsue.pages.frontiers import frontier_figure, levels_figure
from depsue.pages.jobs import MOST_KEPT, Jobs
from depsue.pages.live import Moment, Now
from depsue.pages.planning import Dot, Planned
from depsue.pages.story import Seen
from depsue.pages.told import Novelty, Rounds, told_of
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

FIRST = Moment("2027-05-01 10:00:00.000", 10, (0.5, 0.0, 1.0), None, 0.5, None)
LAST = Moment("2027-05-01 11:00:00.000", 900, (0.3, 0.28, 0.33), (0.31, 0.2, 0.4), 0.1, -4.0)
NOW = Now("healthy", "", 1, "certified", 0.12, 0.05, 60.0, 1.0, 0.25, (), (FIRST, LAST), (), ())


def test_the_live_value_is_drawn_with_its_limits_and_the_floor() -> None:
    value, novelty, margin = live_figures(NOW)
    plot = json.loads(value.plot)
    named = {one["name"]: one for one in plot["data"] if "name" in one}
    assert named["policy"]["y"] == [0.5, 0.3] and named["pi0, holdout"]["y"] == [0.31]
    assert named["floor"]["y"] == [0.25, 0.25]
    upper, lower = plot["data"][3]["y"], plot["data"][4]["y"]
    assert (upper, lower) == ([1.0, 0.33], [0.0, 0.28])
    low, high = plot["layout"]["yaxis"]["range"]
    assert 0.2 < low < 0.25 and 0.33 < high < 0.4  # the wide limits of the beginning do not count
    assert "0.3 (0.28 to 0.33) after 900 decisions" in value.said and "floor 0.25" in value.said
    assert value.cells[0] == (
        "2027-05-01 11:00:00", "900", "0.3 (0.28 to 0.33)", "0.31 (0.2 to 0.4)"
    )  # fmt: skip
    assert "Now 10.0%; as deployed 12.0%" in novelty.said
    assert "Now -4.0 after 900 decisions" in margin.said and len(margin.cells) == 1
    assert live_figures(replace(NOW, moments=())) == []
    without = live_figures(replace(NOW, floor=None, moments=(FIRST,)))
    assert [one.heading for one in without] == ["Value", "Novelty"]


def test_rounds_are_drawn_as_far_as_they_are_known() -> None:
    seen = (
        Seen(0, 100, 0.2, 0.01, 0.19, 0.01),
        Seen(1, 100, 0.18, 0.01, 0.19, 0.01, margin=-1.0, certified=0.191),
        Seen(2, 0, None, None, 0.19, 0.01),
    )
    rounds = Rounds("</script>", "0.95 of pi0's value", seen, ("round",), (("0",),))
    two = (rounds, replace(rounds, promise="clicks"))
    novelty = (Novelty(1, 0.1, 0.2), Novelty(2, None, None))
    found = round_figures(two, novelty)
    assert [one.heading for one in found] == [
        "Value: </script>", "Novelty", "Margin: </script>", "Value: clicks", "Margin: clicks"
    ]  # fmt: skip
    assert len({one.name for one in found}) == 5
    assert all("<" not in one.plot for one in found)
    assert "round 1 0.180 ± 0.020, certified at least 0.191" in found[0].said
    assert "round 2 not observed" in found[0].said and "round 1 -1.0" in found[2].said
    assert "round 2 served –, certified –" in found[1].said
    colours = json.loads(found[2].plot)["data"][0]["marker"]["color"]
    assert colours == ["var(--red)"]
    assert round_figures((), ()) == []


def test_levels_say_how_far_the_test_went() -> None:
    levels = tuple((0.01 * k, 1.1 - 0.001 * k) for k in range(50))
    page = CertificatePage(
        "spring", 1, 1, "", "passed", (), (), (), (), (), levels, 31, levels[29], 0.95, "", None
    )
    found = levels_figure(page)
    assert found is not None
    fates = {cells[0]: cells[2] for cells in found.cells}
    assert (fates["29.0%"], fates["30.0%"], fates["31.0%"]) == ("certified", "failed", "not tested")
    assert fates["0.0%"] == "passed" and fates["49.0%"] == "not tested"
    assert "50 levels, 31 tested; certified at novelty 29.0%" in found.said
    none = levels_figure(replace(page, state="failed", tested=1, certified=None))
    assert none is not None and [cells[2] for cells in none.cells[:2]] == ["failed", "not tested"]
    assert levels_figure(replace(page, levels=())) is None


def test_the_frontier_marks_the_pick() -> None:
    dots = (Dot(0.0, 1.1, 1.0), Dot(0.2, 1.05, 0.9, picked=True))
    plan = Planned("", True, 9, dots, (Dot(0.1, 1.0),), 0.05, 0.95, ("a",), (("b",),), (), (), "")
    found = frontier_figure(plan)
    assert "the pick has novelty 20.0% and value 1.050; floor 0.950" in found.said
    names = [one["name"] for one in json.loads(found.plot)["data"]]
    assert {"frontier", "if new items earn nothing", "pick", "floor"} <= set(names)
    bare = replace(plan, frontier=(Dot(0.0, 1.0),), reaches=(), floor=None)
    assert [one["name"] for one in json.loads(frontier_figure(bare).plot)["data"]] == ["frontier"]


def test_margin_of_a_round_that_was_observed_is_not_counted_twice(home: Path) -> None:
    summer = Campaign(open_home(home), home, "summer", by="bo")
    service = Service(summer, ServingSettings(wait=60.0))
    service.worker.start()
    try:
        decided(service, 200)
        told = told_of(summer)
        tiles = {one.label: one for one in campaign_page(told, service).tiles}
    finally:
        service.close()
    assert told.margin is not None
    assert tiles["margin"].figure == f"{told.margin:+,.0f}"
    assert tiles["margin"].what == "above the floor, observed"
    assert tiles["value now"].figure == "1"  # every decision earned 1


def test_jobs_end_with_a_result_or_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    jobs = Jobs()

    def ended(key: str, work: object) -> object:
        job = jobs.start(key, key, {}, work)  # type: ignore[arg-type]
        assert job.done.wait(60)
        return job

    def refuses(watch: object) -> None:
        raise ConfigError("a rule", found="a value")

    def breaks(watch: object) -> None:
        raise RuntimeError("secret")

    assert ended("good", lambda watch: 42).result == 42  # type: ignore[attr-defined]
    assert ended("refused", refuses).problem == "a rule. Found: a value."  # type: ignore[attr-defined]
    broken = ended("broken", breaks)
    assert "secret" not in broken.problem  # type: ignore[attr-defined]
    assert caplog.messages == ["job failed"] and "RuntimeError: secret" in caplog.text
    for k in range(MOST_KEPT):
        ended(f"more {k}", lambda watch: None)
    assert jobs.of("good") is None and jobs.of(f"more {MOST_KEPT - 1}") is not None


def test_one_job_at_a_time() -> None:
    jobs, goes_on = Jobs(), threading.Event()
    first = jobs.start("a", "verifying a", {}, lambda watch: goes_on.wait(60))
    with pytest.raises(ConfigError, match="under way: verifying a"):
        jobs.start("b", "verifying b", {}, lambda watch: None)
    assert jobs.running is first
    goes_on.set()
    assert first.done.wait(60) and jobs.running is None
