"""The sample-ratio test: right shares pass, broken weeks are found with their limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from depsue.check import check_logs, guess_mapping
from depsue.data import Candidates, Catalogue, LoggedData
from depsue.data.checks import FloatArray, IntArray
from depsue.data.reading import open_source
from depsue.data.writing import write_items, write_logs
from depsue.diagnostics import SampleRatioReport, check_sample_ratio, stream_sample_ratio
from depsue.errors import ConfigError
from depsue.policies import Uniform
from depsue.testing.bounds import binomial_tail

WEEK = np.timedelta64(7 * 86_400, "s")


def drawn(
    seed: int,
    *,
    weeks: int = 8,
    tests: int = 10,
    each: int = 40,
    k: int = 4,
    tilt: float = 0.0,
    broken: tuple[int, int] = (0, 0),
    known: bool = True,
) -> LoggedData:
    """Requests that come up in one week each; in the broken weeks shares differ from even ones.

    Args:
        seed: of the draws.
        weeks: how many.
        tests: requests of a week.
        each: rows of a request.
        k: candidates of a request.
        tilt: by how much shares differ, at most: each item's is (1 + tilt u) / k, u in [-1, 1].
        broken: the first broken week, and the week after the last one.
        known: whether pi0's probabilities are logged.
    """
    draw = np.random.default_rng(seed)
    u = weeks * tests
    week = np.repeat(np.arange(weeks), tests)
    shares: FloatArray = np.full((u, k), 1 / k)
    off = (week >= broken[0]) & (week < broken[1])
    shares[off] *= 1 + tilt * draw.uniform(-1, 1, size=(int(off.sum()), k))
    shares /= shares.sum(axis=1, keepdims=True)
    rows: IntArray = np.repeat(np.arange(u), each)
    place = (draw.random(len(rows))[:, None] > np.cumsum(shares[rows], axis=1)).sum(axis=1)
    items = np.arange(u * k)
    pi0 = np.full(u * k, 1 / k) if known else None
    start = np.datetime64("2013-06-24", "s")
    return LoggedData.from_arrays(
        contexts=np.arange(u, dtype=float)[:, None],
        context_rows=rows,
        candidates=Candidates.of_flat(np.full(u, k), items, pi0),
        actions=rows * k + place.clip(max=k - 1),
        rewards=np.zeros(len(rows)),
        propensities=np.full(len(rows), 1 / k),
        catalogue=Catalogue.of(items),
        r_max=1.0,
        times=start + week[rows] * WEEK + draw.integers(0, 7 * 86_400, len(rows)),
    )


def test_right_shares_are_refuted_no_more_often_than_declared() -> None:
    reports = [check_sample_ratio(drawn(seed, k=2 + seed % 3), delta=0.05) for seed in range(200)]
    assert {len(report.periods) for report in reports} == {8}
    refuted = sum(not report.ok for report in reports)
    assert binomial_tail(refuted, 200, 0.05) > 0.01, refuted
    each = [span.p_value for report in reports for span in report.periods]
    assert np.mean(np.array(each) <= 0.05) < 0.06
    assert 0.45 < np.mean(each) < 0.55


@pytest.mark.parametrize("known", [True, False])
def test_broken_weeks_are_found_with_their_limits(known: bool) -> None:
    logs = drawn(0, weeks=20, tilt=0.6, broken=(7, 12), known=known)
    asked = None if known else Uniform(np.ones(len(logs.catalogue), dtype=bool))
    report = check_sample_ratio(logs, asked)
    assert not report.ok
    (span,) = report.broken
    assert (span.first, span.last, span.periods) == ("2013-W33", "2013-W37", 5)
    assert span.rows == 5 * 10 * 40
    assert "2013-W33 to 2013-W37 (z = +" in str(report)


def test_what_is_too_small_for_a_week_shows_in_several() -> None:
    logs = drawn(1, weeks=40, tilt=0.25, broken=(10, 30), each=60)
    report = check_sample_ratio(logs)
    alone = max(span.score for span in report.periods)
    assert report.broken
    assert max(span.score for span in report.broken) > 1.5 * alone


@pytest.mark.parametrize("known", [True, False])
def test_check_finds_them_in_files(known: bool, tmp_path: Path) -> None:
    """Without pi0's probabilities even ones are seen to be even."""
    logs = drawn(0, weeks=12, tilt=0.6, broken=(4, 8), known=known)
    write_logs(logs, tmp_path / "logs.parquet")
    write_items(logs.catalogue, tmp_path / "items.parquet")
    source = open_source(tmp_path / "logs.parquet")
    mapping = guess_mapping(source)[0]
    streamed = stream_sample_ratio(source, mapping)
    asked = None if known else Uniform(np.ones(len(logs.catalogue), dtype=bool))
    in_memory = check_sample_ratio(logs, asked)
    assert streamed is not None
    assert (streamed.broken[0].first, streamed.broken[0].last) == ("2013-W30", "2013-W33")
    assert [span.rows for span in streamed.periods] == [span.rows for span in in_memory.periods]
    scores = [[span.score for span in report.periods] for report in (streamed, in_memory)]
    assert scores[0] == pytest.approx(scores[1])
    report = check_logs(source, tmp_path / "items.parquet", mapping)
    found = [finding for finding in report.findings if finding.name == "sample-ratio"]
    assert len(found) == 1
    assert "2013-W30 to 2013-W33 (z = +" in found[0].value
    assert not report.usable


def test_propensities_that_are_not_even_need_those_of_all_candidates(tmp_path: Path) -> None:
    logs = drawn(0, known=False)
    write_logs(replace(logs, propensity=logs.propensity * 0.9), tmp_path / "logs.parquet")
    source = open_source(tmp_path / "logs.parquet")
    assert stream_sample_ratio(source, guess_mapping(source)[0]) is None


def test_one_broken_request_is_counted_and_makes_no_broken_weeks() -> None:
    logs = drawn(2, weeks=6, tests=20, each=100)
    first = np.flatnonzero(logs.context == 30)
    action = logs.action.copy()
    action[first] = action[first[0]]  # 100 rows of one item
    report = check_sample_ratio(replace(logs, action=action))
    assert (report.broken, report.requests) == ((), 1)
    assert str(report).endswith("should: 1 request alone")


def test_names_of_periods() -> None:
    def names(report: SampleRatioReport) -> list[str]:
        return [span.first for span in report.periods]

    logs = drawn(3, weeks=30)
    weeks = names(check_sample_ratio(logs))
    assert (weeks[0], weeks[26], weeks[27], weeks[29]) == (
        "2013-W26",
        "2013-W52",
        "2014-W01",
        "2014-W03",
    )
    assert names(check_sample_ratio(logs, periods=np.where(logs.context < 150, "a", "b"))) == [
        "a",
        "b",
    ]
    seconds = np.asarray(logs.time).astype(np.float64)
    assert names(check_sample_ratio(replace(logs, time=seconds)))[0] == "part 1 of 10, by time"
    assert names(check_sample_ratio(replace(logs, time=None))) == ["all rows"]


def test_requests_that_hardly_repeat_are_not_tested() -> None:
    report = check_sample_ratio(drawn(4, each=3))
    assert (report.periods, report.untested, report.ok) == ((), 8, True)


def test_what_cannot_be_tested_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs pi0's probabilities of all candidates"):
        check_sample_ratio(drawn(5, known=False))
    with pytest.raises(ConfigError, match="one period for each row"):
        check_sample_ratio(drawn(5), periods=np.arange(3))
