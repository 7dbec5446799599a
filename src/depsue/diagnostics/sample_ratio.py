"""Was each item shown as often as it should have been? Request by request, week by week.

Where many rows have the same request, and pi0's probabilities p of all its candidates are known,
the counts of what was shown can be held against p without a model (the sample-ratio test of
experimenters). A request with n rows and counts n_a has the pairs of rows that show the same item::

    U = sum over pairs i != j of K(a_i, a_j),   K(a, b) = 1{a = b} - p_a - p_b + sum of p^2

With the right propensities E[K | a_i] = 0, so U has mean 0 and variance 2 n (n - 1) E[K^2], where
E[K^2] = S2 - 2 S3 + S2^2 with the sums S2 of p^2 and S3 of p^3. Where randomisation is broken, U is
far above 0: with even p it is Pearson's chi-squared less its mean, times n / k. K is bounded, so a
candidate with a tiny probability does not swamp the others. Each request counts with equal
variance: T = U / (n sd K), of variance 2 (1 - 1/n).

The sum of T over R requests is compared with a chi-squared variable of R degrees of freedom, less
its mean: the tail is that of the most skewed case, two candidates a request. All spans of weeks
that follow one another are tested, at a level that is divided by their number: an error that is too
small to show in one week shows in several, and the report says from when to when. Half of the level
is for single requests, over all weeks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.data.keys import mix64, row_keys
from depsue.data.lists import ListPiece, pieces
from depsue.data.logs import LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source, contexts_of, in_batches, mapped
from depsue.errors import DataError, require, require_delta
from depsue.plural import counted
from depsue.policies import BroughtPolicy
from depsue.protocols import Policy

if TYPE_CHECKING:
    import polars as pl

MOST = 6.0
"""T counts up to this in a span, so that one request cannot stretch it over sound weeks; a smaller
mean makes the test no less valid. Single requests have a test of their own."""
FEWEST_REQUESTS = 1.0
"""A period is tested if it has this many requests with several rows, each counting 1 - 1/rows."""
FEWEST_OTHERS = 5.0
"""A request is tested in a period if so many of its rows should show another item than the most
likely one: with fewer a single row decides."""
MOST_COUNTED = 3_000_000
"""Groups of a request, a week and an item that are counted, at most."""
PARTS = 10
"""Where times are numbers, the rows are cut into so many periods."""


@dataclass(frozen=True)
class PeriodSpan:
    """What was shown in some periods that follow one another, against pi0's probabilities.

    Args:
        first, last: the names of the first and the last period.
        periods: how many there are.
        rows: rows of requests that have several rows in a period.
        score: how far counts are from what they should be, as a normal variable.
    """

    first: str
    last: str
    periods: int
    rows: int
    score: float

    @property
    def p_value(self) -> float:
        """Of the test of this span alone."""
        return NormalDist().cdf(-self.score)

    def __str__(self) -> str:
        name = self.first if self.periods == 1 else f"{self.first} to {self.last}"
        return f"{name} (z = {self.score:+.1f}, {self.rows:,} rows)"


@dataclass(frozen=True)
class SampleRatioReport:
    """Whether items were shown as often as pi0's probabilities say.

    Args:
        broken: the spans in which they were not, in order of time.
        periods: the periods that could be tested, each a span of its own.
        requests: how many requests are refuted by themselves.
        untested: periods in which hardly any request has several rows.
        delta: correct propensities are refused at most so often, over all spans, about.
    """

    broken: tuple[PeriodSpan, ...]
    periods: tuple[PeriodSpan, ...]
    requests: int
    untested: int
    delta: float

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.broken and not self.requests

    def __str__(self) -> str:
        if self.ok:
            return f"nothing refutes how often items were shown, in {len(self.periods)} period(s)"
        found = [str(span) for span in self.broken]
        found += [f"{counted(self.requests, 'request')} alone"] if self.requests else []
        return "items were not shown as often as they should: " + "; ".join(found)


def check_sample_ratio(
    logs: LoggedData,
    policy: Policy | None = None,
    *,
    periods: Any = None,
    delta: float = 0.001,
) -> SampleRatioReport:
    """Hold what was shown against pi0's probabilities, request by request and week by week.

    Args:
        logs: rows that pi0 drew.
        policy: pi0; None where the logs hold its probabilities of all candidates.
        periods: (n,) names of periods; None takes calendar weeks, or ten parts by time.
        delta: correct propensities are refused at most so often, over all periods, about.
    """
    require_delta(delta)
    known = logs.candidates is not None and logs.candidates.pi0 is not None
    require(
        policy is not None or known,
        "a sample ratio needs pi0's probabilities of all candidates",
        found="the probability of the shown item alone",
        cure="log the candidates with pi0's probability of each, or give the policy",
    )
    asked = BroughtPolicy(len(logs.catalogue)) if policy is None else policy
    names, period = _periods(logs, periods)
    pair = (logs.context.astype(np.int64) * len(names) + period) * len(logs.catalogue)
    _, first, same = np.unique(pair + logs.action, return_index=True, return_counts=True)
    request = logs.context[first]
    second, spread, most = _sums(asked, logs)
    p = same * np.exp(asked.log_prob(logs.requests, logs.action[first], request))
    shown = _Shown(
        request.astype(np.int64),
        period[first],
        same,
        p,
        second[request],
        spread[request],
        most[request],
    )
    return shown.report(names, delta)


def stream_sample_ratio(
    source: Source, mapping: LogMapping, *, delta: float = 0.001
) -> SampleRatioReport | None:
    """The same from files, some rows at a time, where every row has its candidates.

    Rows of round 0 count. Where pi0's probabilities of the candidates are not logged, they are
    taken to be even if every propensity says so; None where they are not, where lists cannot be
    read, or where there are too many distinct requests to be counted.

    Args:
        source: where the rows are.
        mapping: which column is what.
        delta: as above.
    """
    if mapping.candidates is None or mapping.propensity is None:
        return None
    if mapping.by_pi0 is not None or mapping.holdout:  # another policy drew some of the rows
        return None
    frame = mapped(source, mapping)
    kinds = frame.collect_schema()
    contexts = [name for name in kinds.names() if name.startswith("x:")]
    wanted = ["action", "propensity", "candidates", *contexts]
    wanted += [name for name in ("time", "probabilities", "round") if name in kinds]
    dated = "time" in kinds and kinds["time"].is_temporal()
    held: list[_Shown] = []
    try:
        for batch in in_batches(source, frame.select(wanted)):
            shares, at = batch["probabilities"] if mapping.probabilities else None, 0
            for piece in pieces([(batch["candidates"], shares)]):
                rows = batch[at : at + len(piece.sizes)]
                at += len(rows)
                some = _shown_in(piece, rows, mapping, dated)
                if some is None:
                    return None
                held.append(some)
                if len(held) >= 64:
                    held = [_Shown.joined(held)]
                    if len(held[0].request) > MOST_COUNTED:
                        return None
    except DataError:  # the check says elsewhere what cannot be read
        return None
    if not held:
        return None
    shown = _Shown.joined(held)
    weeks, which = np.unique(shown.period, return_inverse=True)
    names = [_name_of_week(int(week)) for week in weeks] if dated else ["all rows"]
    return replace(shown, period=which.astype(np.int64)).report(names, delta)


def _shown_in(
    piece: ListPiece, rows: pl.DataFrame, mapping: LogMapping, dated: bool
) -> _Shown | None:
    """The counts of some rows; None where pi0's probabilities are not known."""
    n, sizes = len(rows), piece.sizes
    if "round" in rows.columns:
        kept = np.asarray(rows["round"].fill_null(0).to_numpy() == 0)
    else:
        kept = np.ones(n, dtype=bool)
    p = rows["propensity"].to_numpy().astype(np.float64)
    row = np.repeat(np.arange(n), sizes)
    shares = piece.shares
    if shares is None:
        even = 1 / np.maximum(sizes, 1)
        if (np.abs(p - even) > 1e-6)[kept].any():
            return None
        shares = even[row]
    if (sizes == 0).any() or not bool(np.isfinite(p).all()):
        return None
    starts = np.cumsum(sizes) - sizes
    entry = mix64(piece.items.hash().to_numpy().astype(np.uint64))
    entry = mix64(entry ^ np.ascontiguousarray(shares, dtype=np.float64).view(np.uint64))
    key = mix64(np.add.reduceat(entry, starts) ^ sizes.astype(np.uint64))
    if any(name.startswith("x:") for name in rows.columns):
        key = mix64(key ^ row_keys(np.asarray(contexts_of(rows, mapping), dtype=np.float32)))
    second, third = (np.add.reduceat(shares**power, starts) for power in (2, 3))
    period: IntArray = np.zeros(n, dtype=np.int64)
    if dated:
        time = rows["time"].to_numpy().astype("datetime64[s]")
        if np.isnat(time).any():
            return None
        period = _week(time)
    action = rows["action"].hash().to_numpy().astype(np.uint64)
    spread, most = second - 2 * third + second**2, np.maximum.reduceat(shares, starts)
    whole = _Shown(
        key.view(np.int64), period, np.ones(n, dtype=np.int64), p, second, spread, most, action
    )
    return whole.take(kept).summed()


@dataclass(frozen=True, eq=False)
class _Shown:
    """c groups of rows with one request, period and item.

    Args:
        request, period: (c,) of each group.
        same: (c,) how many rows.
        p: (c,) the sum over the rows of pi0's probability of the item: one wrong row is one row.
        second, spread, most: (c,) of the request: S2, E[K^2], the largest probability.
        action: (c,) the item, as a number; None where groups are distinct already.
    """

    request: IntArray
    period: IntArray
    same: IntArray
    p: FloatArray
    second: FloatArray
    spread: FloatArray
    most: FloatArray
    action: Any = None

    def take(self, groups: Any) -> _Shown:
        """Some of the groups."""
        columns: list[Any] = [getattr(self, field.name) for field in fields(self)]
        kept: list[Any] = [None if column is None else column[groups] for column in columns]
        return _Shown(*kept)

    def summed(self) -> _Shown:
        """Each group once."""
        names = np.stack([self.request, self.period, self.action.view(np.int64)], axis=1)
        order = np.lexsort(names.T)
        new = np.ones(len(order), dtype=bool)
        new[1:] = (names[order][1:] != names[order][:-1]).any(axis=1)
        first = np.flatnonzero(new)
        if not len(first):
            return self
        counts, p = (np.add.reduceat(column[order], first) for column in (self.same, self.p))
        return replace(self.take(order[first]), same=counts, p=p)

    @staticmethod
    def joined(parts: Sequence[_Shown]) -> _Shown:
        """All groups of all parts, each once."""
        columns = [
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in fields(_Shown)
        ]
        return _Shown(*columns).summed()

    def report(self, names: list[str], delta: float) -> SampleRatioReport:
        """What the counts say, given the names of the periods."""
        order = np.lexsort((self.period, self.request))
        mine = self.take(order)
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(mine.request) != 0) | (np.diff(mine.period) != 0)
        start = np.flatnonzero(new)
        head, same = mine.take(start), mine.same
        n = np.add.reduceat(same, start)
        u = (
            np.add.reduceat(same * (same - 1.0), start)
            - 2 * (n - 1) * np.add.reduceat(mine.p, start)
            + n * (n - 1.0) * head.second
        )
        usable = (n > 1) & (n * (1 - head.most) >= FEWEST_OTHERS)
        head, several = head.take(usable), n[usable]
        t = u[usable] / (several * np.sqrt(head.spread))
        total, weight, rows = (
            np.asarray(np.bincount(head.period, values, len(names)), dtype=np.float64)
            for values in (np.minimum(t, MOST), 1 - 1 / several, several)
        )
        tested = np.flatnonzero(weight >= FEWEST_REQUESTS)
        sums = _Sums([names[k] for k in tested], total[tested], weight[tested], rows[tested])
        spans = max(1, len(tested) * (len(tested) + 1) // 2)
        limit = NormalDist().inv_cdf(1 - delta / 2 / spans)
        _, request = np.unique(head.request, return_inverse=True)
        return SampleRatioReport(
            tuple(sums.broken(0, len(tested), limit)),
            tuple(sums.span(k, k + 1) for k in range(len(tested))),
            _alone(request, t, 1 - 1 / several, delta / 2),
            len(names) - len(tested),
            delta,
        )


def _alone(request: IntArray, t: FloatArray, weight: FloatArray, delta: float) -> int:
    """How many requests are refuted by themselves, over all periods, at delta together."""
    total, weights = np.bincount(request, t), np.bincount(request, weight)
    tested = weights > 0
    if not tested.any():
        return 0
    limit = NormalDist().inv_cdf(1 - delta / int(tested.sum()))
    return int((_score(total[tested], weights[tested]) > limit).sum())


class _Sums:
    """Sums over the periods that can be tested.

    Args:
        names: (w,) of the periods.
        total: (w,) sums of T over their requests.
        weight: (w,) how many requests, each counting 1 - 1/n.
        rows: (w,) how many rows.
    """

    def __init__(
        self, names: list[str], total: FloatArray, weight: FloatArray, rows: FloatArray
    ) -> None:
        self._names = names
        sums = [np.concatenate([[0.0], np.cumsum(part)]) for part in (total, weight, rows)]
        self._total, self._weight, self._rows = sums

    def span(self, first: int, end: int) -> PeriodSpan:
        """Of the periods first to end - 1."""
        score = _score(
            self._total[end] - self._total[first], self._weight[end] - self._weight[first]
        )
        rows = int(self._rows[end] - self._rows[first])
        return PeriodSpan(self._names[first], self._names[end - 1], end - first, rows, float(score))

    def broken(self, first: int, end: int, limit: float) -> Iterator[PeriodSpan]:
        """The spans beyond the limit: the one that is furthest, then those before and after it."""
        best, at = limit, (0, 0)
        for start in range(first, end):
            stops = slice(start + 1, end + 1)
            scores = _score(
                self._total[stops] - self._total[start], self._weight[stops] - self._weight[start]
            )
            furthest = int(scores.argmax())
            if scores[furthest] > best:
                best, at = float(scores[furthest]), (start, start + 1 + furthest)
        if at[1]:
            yield from self.broken(first, at[0], limit)
            yield self.span(*at)
            yield from self.broken(at[1], end, limit)


def _sums(policy: Policy, logs: LoggedData) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(u,) S2, E[K^2] and the largest probability, of the distinct requests."""
    second, third, most = (np.empty(len(logs.requests)) for _ in range(3))
    for piece, pi in policy.distributions(logs.requests):
        square = np.asarray(pi, dtype=np.float64) ** 2
        second[piece], third[piece] = square.sum(axis=1), (square * pi).sum(axis=1)
        most[piece] = np.asarray(pi).max(axis=1)
    return second, second - 2 * third + second * second, most


def _score(total: Any, requests: Any) -> Any:
    """Sums of T over R requests as normal variables, with chi-squared tails (Wilson, Hilferty)."""
    part = 2 / (9 * requests)
    scaled = np.maximum(1 + total / requests, 0.0)
    return (np.cbrt(scaled) - (1 - part)) / np.sqrt(part)


def _periods(logs: LoggedData, given: Any) -> tuple[list[str], IntArray]:
    """The names of the periods in order, and (n,) which one each row is in."""
    if given is not None:
        column = np.asarray(given)
        require(
            column.shape == (len(logs),),
            "periods must name one period for each row",
            found=f"shape {column.shape} for {len(logs):,} rows",
        )
        distinct, which = np.unique(column, return_inverse=True)
        return [str(name) for name in distinct.tolist()], which
    if logs.time is None:
        return ["all rows"], np.zeros(len(logs), dtype=np.int64)
    if logs.time.dtype.kind == "M":
        weeks, which = np.unique(_week(logs.time), return_inverse=True)
        return [_name_of_week(int(week)) for week in weeks], which
    edges = np.unique(np.quantile(logs.time, np.arange(1, PARTS) / PARTS))
    which = np.searchsorted(edges, logs.time, side="right")
    used, which = np.unique(which, return_inverse=True)
    return [f"part {k + 1} of {len(used)}, by time" for k in range(len(used))], which


def _week(time: np.ndarray[Any, Any]) -> IntArray:
    """(n,) the number of the Monday on or before each day, in weeks; 0 has 1970-01-01."""
    days = time.astype("datetime64[D]").astype(np.int64)
    return np.asarray((days + 3) // 7)


def _name_of_week(number: int) -> str:
    """The ISO name of a week, such as 2013-W26."""
    thursday = np.datetime64(number * 7, "D")
    january = thursday.astype("datetime64[Y]").astype("datetime64[D]")
    week = int((thursday - january).astype(np.int64)) // 7 + 1
    return f"{str(thursday)[:4]}-W{week:02}"
