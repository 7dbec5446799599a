"""Units: sessions that go on while the user clicks, and users who come back in every round."""

from __future__ import annotations

import numpy as np

from depsue import rng
from depsue.certificates import (
    Folds,
    Reads,
    Rules,
    certify,
    teaching_rows,
    three_folds,
)
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, read_only
from depsue.data.logs import LoggedData, joined
from depsue.diagnostics import require_unit_rows
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue_research.audit.answers import DELTA, Answer, Key, Outcome, Trial, asked, judged
from depsue_research.audit.verdicts import (
    BASE,
    FEWER,
    FRACTIONS,
    PAIRED,
    alone,
    answered,
    candidates,
    rules_for,
)
from depsue_research.audit.worlds import MISS, RHO

CATALOGUE = Catalogue.of(range(3), novel=[2])
CONTEXT = read_only(np.zeros((1, 1), dtype=np.float32))
PI0, Q = read_only(np.array([0.5, 0.5, 0.0])), read_only(np.array([0.6, 0.4, 0.0]))
SESSIONS, STAYS, LONGEST = 11_000, 0.9, 40
"""Users, how often they go on after a click, and after how many rows none does."""
BOLD, BOLD_FLOOR = (0.7, 0.0, 0.3), 0.82
"""A policy whose users leave sooner: worth .805 of pi0 over sessions, .84 on their first rows."""
USERS, CLUSTERS, ROUNDS = 900, 300, 3
"""Of users who come back: how many, of how many kinds, and for how many rounds."""


def own(pi: FloatArray | tuple[float, ...]) -> OwnPolicy:
    """A policy that knows no context."""
    return OwnPolicy(ScoreTable(CONTEXT, np.asarray(pi, dtype=np.float64)[None]), 3)


def sessions(draw: np.random.Generator, users: int, pi: FloatArray, round: int = 0) -> LoggedData:
    """Rows of sessions that go on, nine times in ten, while the user clicks."""
    alive: IntArray = np.arange(users)
    columns: list[list[FloatArray]] = [[], [], [], []]
    below = np.cumsum(pi)
    for step in range(LONGEST):
        action = (draw.random(len(alive))[:, None] >= below).sum(axis=1).clip(max=2)
        reward = (draw.random(len(alive)) < Q[action]).astype(np.float64)
        for column, values in zip(
            columns, (alive, action, reward, np.full(len(alive), step)), strict=True
        ):
            column.append(np.asarray(values, dtype=np.float64))
        alive = alive[draw.random(len(alive)) < STAYS * reward]
    unit, action, reward, time = (np.concatenate(column) for column in columns)
    order = draw.permutation(len(unit))
    action = action[order].astype(np.int32)
    return LoggedData(
        catalogue=CATALOGUE,
        contexts=CONTEXT,
        context=np.zeros(len(unit), dtype=np.int32),
        action=action,
        reward=reward[order],
        propensity=pi[action],
        r_max=1.0,
        unit=unit[order].astype(np.int64),
        units=np.arange(users),
        time=time[order],
        round=np.full(len(unit), round, dtype=np.int16),
    )


def going_on(draw: np.random.Generator) -> Outcome:
    """Sessions whose length depends on what was shown.

    With "first row" the promise is about first rows, and the candidate misses it by 0.1%. With
    "all rows" a policy that is far below its floor over sessions looks as if it were above.
    """
    logs, out = sessions(draw, SESSIONS, PI0), dict[Key, Answer]()
    reads = Reads(secret=rng.secret(0, "sessions"))
    registration = reads.register(logs)
    first = three_folds(logs, registration, units="first row")
    target = (1 - MISS) * RHO * float(PI0 @ Q)
    share = 1 - target / float(Q[0])
    for bound in PAIRED:
        rules = Rules((Promise(Floor(RHO)),), DELTA, bound, clip=3.0)
        out["strict", "endogenous sessions, first row", bound] = answered(
            alone(own((1 - share, 0.0, share))), first, rules
        )
    whole = three_folds(logs, registration, units="all rows")
    rules = Rules((Promise(Floor(BOLD_FLOOR)),), DELTA, "normal", clip=3.0)
    levels = alone(own(BOLD))

    def tested() -> bool:
        require_unit_rows(joined([whole.learn, whole.select]), own(PI0))
        return certify(levels, whole, rules, Reads()).passed

    out["strict", "endogenous sessions, all rows, tested", "normal"] = asked(tested)
    out["tempting", "endogenous sessions, all rows, not tested", "normal"] = answered(
        levels, whole, rules
    )
    return out


def of_any_size(draw: np.random.Generator) -> Outcome:
    """Units of 1 to 8 rows, whatever they were shown; the promise is about the mean over units."""
    world, [levels] = candidates(BASE)
    logs = world.unit_logs(FEWER // 2, draw)
    reads = Reads(secret=rng.secret(0, "units"))
    folds = reads.folds(logs, FRACTIONS, units="all rows")
    return {
        ("strict", "units of 1 to 8 rows, all rows", bound): answered(
            levels, folds, rules_for(world, bound)
        )
        for bound in PAIRED
    }


def visits(draw: np.random.Generator, likes: IntArray, k: int) -> LoggedData:
    """Every user once in round k, shown one of two items at random."""
    action = draw.integers(2, size=USERS)
    return LoggedData(
        catalogue=CATALOGUE,
        contexts=np.arange(CLUSTERS, dtype=np.float32)[:, None],
        context=(np.arange(USERS) % CLUSTERS).astype(np.int32),
        action=action.astype(np.int32),
        reward=likes[np.arange(USERS), action].astype(np.float64),
        propensity=np.full(USERS, 0.5),
        r_max=1.0,
        unit=np.arange(USERS),
        units=np.arange(USERS),
        round=np.full(USERS, k, dtype=np.int16),
    )


def greedy(rows: LoggedData) -> OwnPolicy:
    """What rows liked best in each kind of user. For other users it is worth (1 - MISS) .95."""
    sums = np.full((CLUSTERS, 2), 0.5)
    kind = rows.contexts[rows.context, 0].astype(np.int64)
    np.add.at(sums, (kind, rows.action), rows.reward - 0.5)
    best, old = np.eye(2)[sums.argmax(axis=1)], (1 - MISS) * RHO
    pi = np.concatenate([old * best, np.full((CLUSTERS, 1), 1 - old)], axis=1)
    return OwnPolicy(ScoreTable(np.arange(CLUSTERS, dtype=np.float32)[:, None], pi), 3)


def coming_back(draw: np.random.Generator) -> Outcome:
    """Users with tastes of their own come in each of 3 rounds; what is learned may know them.

    A policy that remembers what these users liked is worth more to them than to users at large,
    for whom every item is liked by one half. By the rules each user certifies once.
    """
    likes = (draw.random((USERS, 2)) < 0.5).astype(np.int64)
    rounds = [visits(draw, likes, k) for k in range(ROUNDS)]
    reads = Reads(secret=rng.secret(0, "coming back"))
    first = reads.register(rounds[0])
    registered = [first, *(reads.register(logs, first=first) for logs in rounds[1:])]
    out: dict[Key, Answer] = {}
    for k in range(1, ROUNDS + 1):
        earlier = list(zip(rounds[: k - 1], registered, strict=False))
        place, group = f"round {k}", (k, ROUNDS)
        folds = three_folds(rounds[k - 1], registered[k - 1], group=group)
        known = [teaching_rows(logs, registration, group) for logs, registration in earlier]
        passed = _passes([rows for rows in known if rows is not None], folds)
        out["strict", "users who come back, each certifies once", place] = judged(passed)
        if k > 1:
            again = three_folds(rounds[k - 1], registered[k - 1])
            passed = _passes([logs for logs, _ in earlier], again)
            out["tempting", "users who come back, certify each round", place] = judged(passed)
    return out


def _passes(earlier: list[LoggedData], folds: Folds) -> bool:
    policy = greedy(joined([folds.learn, *earlier]))
    rules = Rules((Promise(Floor(RHO)),), DELTA, "normal", clip=3.0)
    return certify(alone(policy), folds, rules, Reads()).passed


TRIALS: dict[str, Trial] = {
    "units": of_any_size,
    "sessions": going_on,
    "coming back": coming_back,
}
"""Each draws its own logs and says what came of every certificate."""
