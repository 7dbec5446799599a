"""What each figure shows: what is drawn, said and tabled."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.campaigns.made import Made

from depsue.campaigns.story import PromiseOutcome
from depsue.pages.figures import levels_figure, live_figures, novelty_figure, round_figures
from depsue.pages.live import Live, LiveValue
from depsue.pages.plan_report import FrontierPoint, PlanResult, frontier_figure
from depsue.promises import Promise
from depsue.serving.account import ServedCounts
from depsue.serving.monitor import MonitorState
from depsue.serving.service import (
    MonitorStatus,
    PermitStatus,
    ServedStatus,
    ServiceStatus,
    StoreStatus,
    WhoDecides,
)

FIRST = LiveValue("2027-05-01 10:00:00.000", 10, (0.5, 0.0, 1.0), None, 0.5, 0.5, None)
LAST = LiveValue(
    "2027-05-01 11:00:00.000", 900, (0.3, 0.28, 0.33), (0.31, 0.2, 0.4), 0.27, 0.1, -4.0
)
STATUS = ServiceStatus(
    campaign="spring",
    state=MonitorState.HEALTHY,
    says="Healthy",
    reason="no evidence of a breach",
    decides=WhoDecides("policy", "certified, of round 1"),
    stops=[],
    since=None,
    ready=True,
    not_ready="",
    round=1,
    policy="",
    what="certified",
    novelty=0.12,
    made_in=1,
    share=0.95,
    holdout=0.05,
    shares=[],
    ramp=None,
    served=ServedStatus(ServedCounts(855, 45, 0, 90), [], None, None),
    monitor=MonitorStatus(PermitStatus(None, ""), 900, 0, 0, 0, 0, 0, []),
    store=StoreStatus("", 0, 0, 0),
    problem="",
    waiting=0,
)
LIVE = Live(
    status=STATUS,
    verdict="",
    decided="",
    recent=None,
    asks="",
    traffic="",
    troubles=(),
    rewards="",
    floor=0.25,
    floor_is="as declared",
    wait=60.0,
    r_max=1.0,
    values=(FIRST, LAST),
    events=(),
    events_unread="",
)


def test_the_live_value_is_drawn_with_its_limits_and_the_floor() -> None:
    value, novelty, margin = live_figures(LIVE)
    plot = json.loads(value.plotly)
    named = {one["name"]: one for one in plot["data"] if "name" in one}
    assert named["policy"]["y"] == [0.5, 0.3] and named["pi0, holdout"]["y"] == [0.31]
    assert named["floor"]["y"] == [0.25, 0.25] and named["policy, lately"]["y"] == [0.5, 0.27]
    upper, lower = plot["data"][3]["y"], plot["data"][4]["y"]
    assert (upper, lower) == ([1.0, 0.33], [0.0, 0.28])
    low, high = plot["layout"]["yaxis"]["range"]
    assert 0.2 < low < 0.25 and 0.33 < high < 0.4  # the wide limits of the beginning do not count
    assert (
        "0.3 (0.28 to 0.33), lately 0.27 after 900 decisions" in value.description
        and "floor 0.25, as declared" in value.description
    )
    assert value.cells[0] == (
        "2027-05-01 11:00:00", "900", "0.3 (0.28 to 0.33)", "0.27", "0.31 (0.2 to 0.4)"
    )  # fmt: skip
    assert "Now 10.0%; the deployed policy by itself 12.0%" in novelty.description
    assert "Now -4.0 after 900 decisions" in margin.description and len(margin.cells) == 1
    assert live_figures(replace(LIVE, values=())) == []
    without = live_figures(replace(LIVE, floor=None, values=(FIRST,)))
    assert [one.heading for one in without] == ["Value", "Novelty"]
    hidden = replace(FIRST, policy=None, recent=None)  # no reward may be shown
    assert [one.heading for one in live_figures(replace(LIVE, values=(hidden,)))] == ["Novelty"]


def test_rounds_are_drawn_as_far_as_they_are_known() -> None:
    promises = (Promise(name="</script>"), Promise(name="clicks"))
    story = Made(rounds=3, promises=promises).observe(0).round(1, 0.18).story
    first = story.promises[0]
    outcomes = (
        PromiseOutcome(0, 100, 0.2, 0.01, 0.19, 0.01),
        PromiseOutcome(1, 100, 0.18, 0.01, 0.19, 0.01, margin=-1.0, certified=0.191),
        PromiseOutcome(2, 0, None, None, 0.19, 0.01),
    )
    story = replace(story, promises=(replace(first, outcomes=outcomes), story.promises[1]))
    figures = round_figures(story)
    assert [one.heading for one in figures] == [
        "Value: </script>", "Novelty", "Value: clicks", "Margin: </script>", "Margin: clicks",
        "Discoverable corpus",
    ]  # fmt: skip
    assert len({one.name for one in figures}) == 6
    assert all("<" not in one.plotly for one in figures)
    value, novelty, _, margin, _, corpus = figures
    assert "round 1 0.180 ± 0.020, certified at least 0.191" in value.description
    assert all("round 2" not in one.description for one in figures), "it has nothing to draw yet"
    assert "round 1: 2 of 2." in corpus.description and "at least 100 times" in corpus.description
    assert (
        "round 1 -1.0" in margin.description
        and "round 1 served 20.0%, certified" in novelty.description
    )
    bars = [one for one in json.loads(margin.plotly)["data"] if one.get("type") == "bar"]
    assert [one["marker"]["color"] for one in bars] == ["var(--red)"]
    assert round_figures(Made().story) == [] and novelty_figure(Made().story.history) is None


def test_levels_say_how_far_the_test_went() -> None:
    novelties = tuple(nu / 100 for nu in range(50))
    story = Made().observe(0).train(1, novelties=novelties).certify(1, 0.29).story
    figure = levels_figure(story, story.tests[0], "How far", "levels")
    assert figure is not None
    fates = {cells[0]: cells[2] for cells in figure.cells}
    assert (fates["29.0%"], fates["30.0%"], fates["31.0%"]) == ("certified", "failed", "not tested")
    assert fates["0.0%"] == "passed" and fates["49.0%"] == "not tested"
    assert "50 levels, 31 tested, passed; novelty up to 49.0%; certified at novelty 29.0%" in (
        figure.description
    )
    failed = Made().observe(0).train(1).certify(1, None).story
    figure = levels_figure(failed, failed.tests[0], "How far", "levels")
    assert figure is not None and [cells[2] for cells in figure.cells[:2]] == [
        "failed",
        "not tested",
    ]
    names = [one.get("name") for one in json.loads(figure.plotly)["data"]]
    assert "failed" in names and "certified" not in names and "floor" in names
    assert levels_figure(story, replace(story.tests[0], levels=()), "", "") is None


def test_the_frontier_marks_the_pick() -> None:
    dots = (FrontierPoint(0.0, 1.1, 1.0), FrontierPoint(0.2, 1.05, 0.9, picked=True))
    reach = (FrontierPoint(0.1, 1.0),)
    plan = PlanResult("", True, 9, dots, reach, 0.05, 0.95, ("a",), (("b",),), (), (), "")
    found = frontier_figure(plan)
    assert "the pick has novelty 20.0% and value 1.050; floor 0.950" in found.description
    names = [one.get("name") for one in json.loads(found.plotly)["data"]]
    assert {"frontier", "if new items earn nothing", "pick", "floor"} <= set(names)
    bare = replace(plan, frontier=(FrontierPoint(0.0, 1.0),), reaches=(), floor=None, certain=0.0)
    assert [one["name"] for one in json.loads(frontier_figure(bare).plotly)["data"]] == ["frontier"]
