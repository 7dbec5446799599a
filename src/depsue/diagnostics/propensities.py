"""Are the logged propensities those that drew the actions? A test, before anything rests on them.

For a function m(x, a) >= 0 that was fixed before a row was seen, with sum over a of m(x, a) at
most 1 for every x, correct propensities p = pi0(a|x) give::

    z = m(x, a) / p,     E[z | x] = sum over a with pi0(a|x) > 0 of m(x, a) <= 1

whatever pi0 is. So a lower bound on the mean of z that exceeds 1 refutes the propensities. m is
learned from other rows: the closer it comes to pi0, the less z varies and the smaller the errors
that are found. Wrong by a factor of 2 up or down in 20% of rows, the mean of z is 1.05.

The claim holds row by row, each with its own propensity and its context held fixed, so neither
repeated users nor a policy that changed can cause a false refusal. What it cannot see:
propensities that are too large everywhere (z has a mean below 1, as it also has where m puts mass
on what pi0 cannot show), unless a smallest probability is declared (`least`).

The test and its report stand first; below are the models m(x, a) of the logging policy, learned
from some rows to test the propensities of others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from depsue.bounds import Smoothing
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.data.keys import mix64, row_keys
from depsue.data.logs import LoggedData, joined
from depsue.data.requests import Candidates, Requests
from depsue.data.terms import ConservativeTerms
from depsue.diagnostics.drawn_by import TOLERANCE, drawn_probabilities, unlike
from depsue.diagnostics.propensity_report import PropensityReport, RoundTest
from depsue.errors import DataError, is_real, require, require_delta, short
from depsue.policies import BasePolicy
from depsue.protocols import BoundValue, Policy

FIT, CHOOSE = 8, 2
"""Of 20 learning rows, 8 fit the candidates for m and 2 choose among them; 10 are tested."""
DIRECTIONS = 32
"""Principal directions of the contexts that the regression looks at, at most."""
STEPS, EPOCHS = 500, 10
"""Most steps of the softmax regression, and most readings of each row."""
TRUSTS = (None, 1.0, 0.1, 0.0)
"""How the memory is used: not at all, or with this trust in the model beside it."""
CHUNK = 1 << 21
"""Probabilities held in memory at once."""


def lower(z: FloatArray, delta: float, least: float, proof: str) -> BoundValue:
    """The lower bound on E[z], for z >= least."""
    return Smoothing(unit_scale=1.0).lower(ConservativeTerms(z, least, proof=proof), delta)


def check_propensities(
    learn: LoggedData,
    select: LoggedData,
    *,
    logging_policy: Policy | Mapping[int, Policy] | None = None,
    delta: float = 0.01,
    fixed_policy: bool = False,
    least: float | None = None,
    within: float = 1.0,
) -> PropensityReport:
    """Hold the propensities of the learn and select folds against the actions that were shown.

    Half of the learn rows (by a hash of their position) learn m; the other half and all select
    rows are tested. Rounds are tested one by one, at delta / rounds each.

    Args:
        learn, select: two folds; never the certifying one.
        logging_policy: the policy that drew the rows, or one for each round: then propensities
            must be its own, to 0.1%.
        delta: correct propensities are refused at most so often.
        fixed_policy: declares that in every round one policy drew all rows, and that the contexts
            hold all that it saw. Then two rows of one context and action with two propensities,
            and propensities of a context that sum to more than 1, refute; else they are notes.
        least: declares that round 0 shows each action that is not novel at least so often in
            every context. Then propensities that are too large are found too.
        within: the factor within which propensities are declared to be right; 1 is exactly.
    """
    delta, least = require_delta(delta), _checked_least(least, learn)
    require(
        learn.catalogue.hash == select.catalogue.hash,
        "the folds must have one catalogue",
        found=f"{len(learn.catalogue)} and {len(select.catalogue)} actions",
        cure="split one LoggedData",
    )
    pool = _Pool.of(learn, select)
    rounds = np.unique(pool.round).tolist()
    policies = _policy_of_round(logging_policy, rounds)
    findings: list[str] = []
    notes: list[str] = []
    tests: list[RoundTest] = []
    each = delta / len(rounds) / (1 if least is None else 2)
    for number in rounds:
        where = f"round {number}: "
        mine = np.flatnonzero(pool.round == number)
        wrong = [] if number not in policies else pool.unlike(policies[number], mine)
        findings += [where + sentence for sentence in wrong]
        disagreements = [where + sentence for sentence in pool.disagree(mine)]
        (findings if fixed_policy else notes).extend(disagreements)
        rows = pool.rows(mine, learn.catalogue.novel & (number == 0))
        if not (rows.part == 2).any():
            notes.append(f"{where}too few rows for a test ({len(mine)})")
            continue
        if pool.logs is None:
            name, z = tested(rows)
        else:
            name, z = tested_on_candidates(pool.logs.take(mine), rows.part, rows.allowed)
        bound = lower(z, each, 0.0, "m sums to at most 1 over the actions")
        if bound.value > within:
            findings.append(
                f"{where}the mean of m/p must be at most {within:g}; it is {bound.mean:.4f}, above "
                f"{bound.value:.4f} at delta {each:.3g}, over {bound.n:,} rows (m: {name})"
            )
        over = None
        if least is not None and number == 0:
            over, sentences = _overstated(rows, least, each)
            findings += [where + sentence for sentence in sentences]
        learned = int((rows.part < 2).sum())
        tests.append(RoundTest(int(number), learned, name, bound, over))
    require(bool(tests), "a test needs more rows", found=f"{len(pool.round)}", cure="log more")
    return PropensityReport(
        ok=not findings,
        findings=tuple(findings),
        notes=tuple(notes),
        assumed=tuple(_assumed(bool(policies), fixed_policy, least)),
        delta=delta,
        rounds=tuple(tests),
    )


def require_propensities(
    learn: LoggedData,
    select: LoggedData,
    *,
    logging_policy: Policy | Mapping[int, Policy] | None = None,
    delta: float = 0.01,
    fixed_policy: bool = False,
    least: float | None = None,
    within: float = 1.0,
) -> PropensityReport:
    """The report of `check_propensities`, or a DataError with the first thing that refutes."""
    report = check_propensities(
        learn,
        select,
        logging_policy=logging_policy,
        delta=delta,
        fixed_policy=fixed_policy,
        least=least,
        within=within,
    )
    if report.ok:
        return report
    more = len(report.findings) - 1
    raise DataError(
        "propensities must be the probabilities that the logged actions were drawn with",
        column="propensity",
        found=report.findings[0] + (f" (and {more} more)" if more else ""),
        cure="log the probability that the policy drew the action with, at the moment it was "
        "drawn, and drop no rows by what was shown; where the rows of some items were dropped on "
        "purpose, and those items had the same probability in every context, say what share of "
        "decisions was kept: --kept 0.9375 (kept in the mapping) for 75 of 80 equally likely items",
    )


class _Pool(NamedTuple):
    """The rows of both folds over one table of contexts; `first` of them are learn's.

    `logs` are they where requests bring candidates, `mixed` where pi0's own rows are told apart.
    """

    contexts: FloatArray
    context: IntArray
    action: IntArray
    propensity: FloatArray
    round: IntArray
    part: IntArray
    size: int
    first: int
    logs: LoggedData | None
    mixed: LoggedData | None

    @classmethod
    def of(cls, learn: LoggedData, select: LoggedData) -> _Pool:
        both = (learn, select)
        table = np.concatenate([logs.contexts for logs in both])
        keys = row_keys(table)
        if learn.candidates is not None:  # one context brings other candidates each time
            keys = np.concatenate([logs.requests.keys for logs in both])
        _, index, which = np.unique(keys, return_index=True, return_inverse=True)
        shift = (0, len(learn.contexts))
        turn = mix64(np.arange(len(learn))) % np.uint64(20)
        part = np.where(turn < FIT, 0, np.where(turn < FIT + CHOOSE, 1, 2))
        return cls(
            table[index],
            which[np.concatenate([s + logs.context for s, logs in zip(shift, both, strict=True)])],
            np.concatenate([logs.action for logs in both]),
            np.concatenate([logs.propensity for logs in both]),
            np.concatenate([np.asarray(logs.round) for logs in both]),
            np.concatenate([part, np.full(len(select), 2)]),
            len(learn.catalogue),
            len(learn),
            None if learn.candidates is None else joined([learn, select]),
            None if learn.by_pi0 is None else joined([learn, select]),
        )

    def rows(self, mine: IntArray, hidden: Mask) -> Rows:
        """The given rows, for the test."""
        features = principal(self.contexts)
        every = Rows(features, self.context, self.action, self.propensity, self.part, ~hidden)
        return every.at(mine)

    def name(self, row: int) -> str:
        """A row by its fold and its position there."""
        return f"learn row {row}" if row < self.first else f"select row {row - self.first}"

    def unlike(self, policy: Policy, mine: IntArray) -> list[str]:
        """Rows whose propensity is not the policy's."""
        p = self.propensity[mine]
        rows = self.logs if self.mixed is None else self.mixed
        if rows is None and isinstance(policy, BasePolicy) and policy.rests_on_choice:
            return []  # pi0 alone drew them, and these propensities are all that is known of it
        if rows is not None:
            own = drawn_probabilities(policy, rows.take(mine))
            wrong: IntArray = np.flatnonzero(~(np.abs(own / p - 1) < TOLERANCE))
        else:
            wrong, own = unlike(
                policy, Requests(self.contexts), self.action[mine], self.context[mine], p
            )
        if not len(wrong):
            return []
        return [
            f"propensities must be those of the logging policy, to 0.1%; {len(wrong):,} of "
            f"{len(mine):,} rows are not, the first is {self.name(int(mine[wrong[0]]))}: "
            f"{p[wrong[0]]:.6g}, while the policy says {own[wrong[0]]:.6g}"
        ]

    def disagree(self, mine: IntArray) -> Iterator[str]:
        """What cannot be if one policy, that saw nothing but the contexts, drew these rows."""
        if self.mixed is not None:
            return  # two policies did, and each row says which
        pair = self.context[mine].astype(np.int64) * self.size + self.action[mine]
        order = mine[np.lexsort((self.propensity[mine], pair))]
        key, start = np.unique(np.sort(pair), return_index=True)
        low, high = order[start], order[np.append(start[1:], len(order)) - 1]
        apart = np.flatnonzero(self.propensity[high] > self.propensity[low] * (1 + TOLERANCE))
        if len(apart):
            least, most = int(low[apart[0]]), int(high[apart[0]])
            yield (
                f"one context and action must have one propensity, to 0.1%; {len(apart):,} of "
                f"{len(key):,} have more, the first in {self.name(least)} and {self.name(most)}: "
                f"{self.propensity[least]:.6g} and {self.propensity[most]:.6g}"
            )
        sums = np.bincount(key // self.size, self.propensity[low])
        over = np.flatnonzero(sums > 1 + TOLERANCE)
        if len(over):
            row = int(mine[np.flatnonzero(self.context[mine] == over[0])[0]])
            yield (
                f"propensities of the actions seen in one context must sum to at most 1; "
                f"{len(over):,} contexts exceed it, the first is that of {self.name(row)}: "
                f"{sums[over[0]]:.6g}"
            )


def _overstated(rows: Rows, least: float, delta: float) -> tuple[BoundValue | None, list[str]]:
    """The bound on E[1 - 1/(A p)], which is 0 if every action is shown; and what refutes."""
    test = rows.take(2)
    below = int((rows.propensity < least * (1 - TOLERANCE)).sum())
    if below:
        return None, [f"no propensity may be below the declared least, {least:g}; {below:,} are"]
    largest = 1 / (int(rows.allowed.sum()) * least)
    z = np.minimum(1 / (rows.allowed.sum() * test.propensity), largest)
    bound = lower(1 - z, delta, min(1 - largest, 0.0), "1/(A p) has mean 1 with full support")
    if bound.value <= 0:
        return bound, []
    sentence = (
        f"the mean of 1/(A p) must be 1 where every action is shown; it is "
        f"{1 - bound.mean:.4f}, below {1 - bound.value:.4f} at delta {delta:.3g}, over "
        f"{bound.n:,} rows: propensities are too large"
    )
    return bound, [sentence]


def _checked_least(least: float | None, logs: LoggedData) -> float | None:
    supported = int((~logs.catalogue.novel).sum())
    require(
        least is None or (is_real(least) and 0 < least <= 1 / supported * (1 + 1e-9)),
        f"least must lie in (0, 1/{supported}], for there are {supported} actions to show",
        found=short(least),
        cure="an epsilon-greedy policy has least = epsilon / A; None declares nothing",
    )
    return None if least is None else float(least)


def _policy_of_round(
    policies: Policy | Mapping[int, Policy] | None, rounds: list[int]
) -> Mapping[int, Policy]:
    if policies is None or isinstance(policies, Mapping):
        return policies or {}
    require(
        len(rounds) == 1,
        "rows of several rounds were drawn by several policies",
        found=f"one policy for rounds {rounds}",
        cure="logging_policy={0: pi0, 1: pi1, ...}",
    )
    return {rounds[0]: policies}


def _assumed(policies: bool, fixed_policy: bool, least: float | None) -> Iterator[str]:
    yield "given its context, a row's action was drawn without regard to other rows"
    if policies:
        yield "the logging policy that was handed in is the one that was served"
    if fixed_policy:
        yield "declared: one policy a round, and the contexts hold all that it saw"
    if least is not None:
        yield f"declared: round 0 shows every supported action at least {least:g} of the time"


class Rows(NamedTuple):
    """n rows of one round; `part` is 0 where m is fitted, 1 where it is chosen, 2 where tested.

    Args:
        features: (u, f) features of the distinct contexts.
        context, action, propensity, part: (n,) columns.
        allowed: (A,) True for actions that the round may show.
    """

    features: FloatArray
    context: IntArray
    action: IntArray
    propensity: FloatArray
    part: IntArray
    allowed: Mask

    def take(self, part: int) -> Rows:
        """The rows of one part."""
        return self.at(np.flatnonzero(self.part == part))

    def at(self, rows: IntArray) -> Rows:
        """The given rows."""
        return self._replace(
            context=self.context[rows],
            action=self.action[rows],
            propensity=self.propensity[rows],
            part=self.part[rows],
        )


class Logits(NamedTuple):
    """m(a|x), a softmax over actions of `offset[a] + features[x] @ slopes[a]`.

    Args:
        features: (u, f) of every context, float32.
        offset: (A,) -inf for actions that the round may not show.
        slopes: (A, f).
    """

    features: FloatArray
    offset: FloatArray
    slopes: FloatArray

    def chunks(self, contexts: IntArray) -> Iterator[tuple[slice, FloatArray]]:
        """For (c,) contexts, a chunk at a time: slice, and (chunk, A) m."""
        step = max(1, CHUNK // len(self.offset))
        slopes, offset = self.slopes.T.astype(np.float32), self.offset.astype(np.float32)
        for start in range(0, len(contexts), step):
            piece = slice(start, min(start + step, len(contexts)))
            out = self.features[contexts[piece]] @ slopes
            out += offset
            out -= out.max(axis=1, keepdims=True)
            np.exp(out, out=out)
            out /= out.sum(axis=1, keepdims=True) * np.float32(1 + 1e-5)  # at most 1, if rounded
            yield piece, out

    def at(self, context: IntArray, action: IntArray) -> FloatArray:
        """(n,) m(a|x) of pairs."""
        order = np.argsort(context, kind="stable")
        distinct, starts = np.unique(context[order], return_index=True)
        ends = np.append(starts, len(order))
        chosen = np.empty(len(order))
        for piece, m in self.chunks(distinct):
            rows = order[ends[piece.start] : ends[piece.stop]]
            local = np.searchsorted(distinct[piece], context[rows])
            chosen[rows] = m[local, action[rows]]
        return chosen


def principal(contexts: FloatArray) -> FloatArray:
    """(u, f) a constant 1 and the contexts' principal components, scaled to variance 1."""
    centred = contexts - contexts.mean(axis=0, dtype=np.float64)
    values, axes = np.linalg.eigh(centred.T @ centred / len(centred))
    largest = np.flatnonzero(values > 1e-9 * values.max(initial=0.0))[-DIRECTIONS:]
    components = centred @ (axes[:, largest] / np.sqrt(values[largest]))
    return np.column_stack([np.ones(len(contexts)), components]).astype(np.float32)


def frequencies(rows: Rows) -> Logits:
    """m(a) = (count of a + 1/2) / (n + A/2) over the A actions allowed, in every context."""
    count = np.bincount(rows.action, minlength=len(rows.allowed)) + 0.5
    with np.errstate(divide="ignore"):
        offset = np.log(np.where(rows.allowed, count, 0.0) / count[rows.allowed].sum())
    return Logits(rows.features, offset, np.zeros((len(offset), rows.features.shape[1])))


def regression(rows: Rows, start: Logits) -> Logits:
    """Softmax regression of the actions on their contexts' features, by likelihood.

    AdaGrad over batches in a fixed order, from `start`; the slopes are the average over the second
    half of the steps. It does not look at the propensities.
    """
    n = len(rows.action)
    batch = max(32, min(1024, n // 8, CHUNK // 2 // len(start.offset)))
    steps = max(2, min(STEPS, EPOCHS * n // batch))
    order = np.argsort(mix64(np.arange(n)))
    offset, slopes = start.offset.astype(np.float32), start.slopes.astype(np.float32)
    squares, total = np.full_like(slopes, 1e-6), np.zeros_like(slopes)
    for step in range(steps):
        mine = order[np.arange(step * batch, (step + 1) * batch) % n]
        x = rows.features[rows.context[mine]]
        m = x @ slopes.T
        m += offset
        m -= m.max(axis=1, keepdims=True)
        np.exp(m, out=m)
        m /= m.sum(axis=1, keepdims=True)
        m[np.arange(batch), rows.action[mine]] -= 1
        gradient = m.T @ x / np.float32(batch)
        squares += gradient * gradient
        slopes -= gradient / np.sqrt(squares)
        if step >= steps // 2:
            total += slopes
    return start._replace(slopes=total / np.float32(steps - steps // 2))


class SeenPropensities(NamedTuple):
    """What the fitting rows showed of each context.

    Args:
        key: (k,) context * A + action, of every pair seen, increasing.
        propensity: (k,) geometric mean of the propensities seen for it.
        total: (u,) their sum in each context.
    """

    key: IntArray
    propensity: FloatArray
    total: FloatArray

    @classmethod
    def of(cls, rows: Rows) -> SeenPropensities:
        """What these rows showed."""
        size = len(rows.allowed)
        pair = rows.context.astype(np.int64) * size + rows.action
        key, which, times = np.unique(pair, return_inverse=True, return_counts=True)
        seen: FloatArray = np.exp(np.bincount(which, np.log(rows.propensity)) / times)
        total: FloatArray = np.zeros(len(rows.features))
        np.add.at(total, key // size, seen)
        return cls(key, seen, total)

    def over(self, model: Logits, rows: Rows) -> Iterator[FloatArray]:
        """(n,) m(x, a) of the rows, for each of TRUSTS.

        With K the sum of what is known in a context, known actions get p / (K + trust (1 - K)),
        and the others share the rest as in the model. Trust 1 takes the model for what the memory
        does not know; trust 0 leaves it out, wherever anything is known; None asks the model only.
        """
        size = len(rows.allowed)
        here = np.isin(self.key // size, rows.context)
        key, seen = self.key[here], self.propensity[here]
        context, action = key // size, key % size
        pairs = np.concatenate([rows.context, context]), np.concatenate([rows.action, action])
        base, of_known = np.split(model.at(*pairs), [len(rows.action)])
        wanted = rows.context.astype(np.int64) * size + rows.action
        known = np.zeros(len(wanted))
        if len(key):
            place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            known = np.where(key[place] == wanted, seen[place], 0.0)
        rest = np.maximum(1 - np.bincount(context, of_known, minlength=len(self.total)), 1e-6)
        for trust in TRUSTS:
            if trust is None:
                yield base
                continue
            left = np.maximum(1 - self.total, 0) * np.where(self.total > 0, trust, 1.0)
            m = np.where(known > 0, known, (left / rest)[rows.context] * base)
            yield m / (self.total + left)[rows.context]


def models(rows: Rows) -> Iterator[tuple[str, Logits]]:
    """The models that m is chosen from, fitted on these rows, with a name each."""
    frequent = frequencies(rows)
    flat = frequent._replace(offset=np.where(rows.allowed, 0.0, -np.inf))
    yield "uniform", flat
    yield "frequencies", frequent
    if len(rows.action):
        yield "softmax regression", regression(rows, frequent)


def growth(z: FloatArray) -> float:
    """How fast the capital of a bet on E[z] > 1 grows, per row, with the best of some scales."""
    scales = 4.0 ** np.arange(0, 7)
    return max(float(np.log1p(z / s).mean() - np.log1p(1 / s)) for s in scales)


def tested(rows: Rows) -> tuple[str, FloatArray]:
    """The name of m and (n,) z = m/p of the rows that are tested.

    Of all candidates, m is the one whose bet grows fastest on the rows kept for the choice.
    """
    fit, choice, test = (rows.take(part) for part in range(3))
    memory = SeenPropensities.of(fit)
    best, fastest = ("uniform", 0, frequencies(fit)), -np.inf
    for name, model in models(fit):
        for use, m in enumerate(memory.over(model, choice)):
            rate = growth(m / choice.propensity) if len(m) else 0.0
            if rate > fastest:
                best, fastest = (name, use, model), rate
    name, use, model = best
    words = "" if TRUSTS[use] is None else f", and what was seen in a context ({TRUSTS[use]:g})"
    m = list(memory.over(model, test))[use]
    return name + words, m / test.propensity


def tested_on_candidates(logs: LoggedData, part: IntArray, allowed: Mask) -> tuple[str, FloatArray]:
    """The same where requests bring candidates: m is a distribution over those of each request.

    m weighs the candidates evenly, or by how often an item was shown where it was offered, or by
    pi0's logged probability, corrected by how often the item was shown against it. Where rows say
    whether pi0 chose the item itself, m is of both together.

    Args:
        logs: the n rows of a round.
        part: (n,) which part of the test each row is in.
        allowed: (A,) True for items that the round may show.
    """
    sets = logs.candidates
    if sets is None:
        raise RuntimeError("rows without candidates are tested by `tested`")
    arms = [np.ones(len(logs), dtype=bool)]
    if logs.by_pi0 is not None:  # who drew the row belongs to what was drawn
        arms = [logs.by_pi0 > 0, logs.by_pi0 == 0]
    z: dict[str, FloatArray] = {}
    for arm in arms:
        fit = np.flatnonzero((part == 0) & arm)
        share = (len(fit) + 0.5) / (int((part == 0).sum()) + 0.5 * len(arms))
        for name, m in _among_candidates(logs, sets, fit, allowed):
            mine = share * m / logs.propensity
            z[name] = np.where(arm, mine, z.get(name, 0.0))
    rates = {
        name: growth(values[part == 1]) if (part == 1).any() else 0.0 for name, values in z.items()
    }
    best = max(rates, key=lambda name: rates[name])
    return f"{best} among the candidates", z[best][part == 2]


def _among_candidates(
    logs: LoggedData, sets: Candidates, fit: IntArray, allowed: Mask
) -> Iterator[tuple[str, FloatArray]]:
    """By name, (n,) m of each row's item, fitted on some of the rows."""
    size, request = len(logs.catalogue), logs.context
    each = np.bincount(request[fit], minlength=len(sets)).astype(np.float64)[sets.request]
    shown = np.bincount(logs.action[fit], minlength=size).astype(np.float64)
    may = allowed[sets.items].astype(np.float64)
    offered = np.bincount(sets.items, each * may, minlength=size)
    mean = len(fit) / max(float(offered.sum()), 1.0)
    options = {"even": may, "frequencies": may * ((shown + mean) / (offered + 1))[sets.items]}
    if sets.pi0 is not None:
        expected = np.bincount(sets.items, each * sets.pi0, minlength=size)
        options["pi0, corrected"] = sets.pi0 * ((shown + 5) / (expected + 5))[sets.items]
    entry = sets.entry(request, logs.action)
    for name, weights in options.items():
        total = np.bincount(sets.request, weights, minlength=len(sets))[request]
        yield name, np.where(total > 0, weights[entry] / np.where(total > 0, total, 1.0), 0.0)
