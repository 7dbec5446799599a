"""A user who shops: for names, for other ways to declare the same rows, for more rows.

Every candidate misses its floor by 0.1%. By the rules a second throw of the dice is refused or
paid for; the tempting rule takes each for the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from depsue import rng
from depsue.certificates import (
    FRACTIONS,
    Folds,
    MixtureLadder,
    Reads,
    Registration,
    Rules,
    certify,
    three_folds,
)
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray
from depsue.data.folds import keys_of_ids
from depsue.data.identity import identities, keyed_folds
from depsue.data.keys import mix64
from depsue.data.logs import LoggedData
from depsue.errors import DepsueError
from depsue.estimators.weights import importance_weights
from depsue.policies import OwnPolicy, ScoreTable
from depsue.promises import Floor, Promise
from depsue.testing.splits import split
from depsue_research.audit.answers import DELTA, Answer, Key, Outcome, Trial, judged
from depsue_research.audit.verdicts import FEWER, alone, issued, rivals, rules_for
from depsue_research.audit.worlds import MISS, NearMissWorld, near_miss_world

NAMES = (20, 100)
"""Names of the campaign that are tried."""
NAMED, TRIED = 200, 8
"""Ids that are given to rows as their units, each taken for new; of how many a verdict is asked."""
ENCODINGS = 4
"""Other units that are tried before the first verdict, where retries were declared."""
LOOKS, MOST, SHOPPED = 60, 12_000, 4000
"""Times that rows are appended, rows in the end, and rows that are declared in many ways."""


@dataclass(frozen=True, eq=False)
class Declared:
    """Rows as somebody declares them.

    Args:
        logs: the rows.
        pi: (u, A) the candidate on them.
        fractions: of the folds.
    """

    logs: LoggedData
    pi: FloatArray
    fractions: tuple[float, float, float] = FRACTIONS

    @property
    def levels(self) -> MixtureLadder:
        """The candidate, as a list of one level."""
        table = ScoreTable(self.logs.contexts, self.pi[: len(self.logs.contexts)])
        return alone(OwnPolicy(table, self.pi.shape[1]))


def below_floor() -> tuple[NearMissWorld, FloatArray]:
    """A world and a candidate that just misses the floor."""
    world, [levels, *_] = rivals()
    return world, world.distribution(levels.policy(0))


def timed(logs: LoggedData, start: int = 0) -> LoggedData:
    """The rows with times, one a second."""
    return replace(logs, time=np.arange(start, start + len(logs), dtype=np.float64))


def names(draw: np.random.Generator) -> Outcome:
    """The name whose learn and select rows look worst, so that the certifying ones look best."""
    world, [levels, *_] = rivals()
    logs, rules = (
        world.logs(world.pi0, SHOPPED, draw),
        rules_for(world, "normal", Floor(None, world.floor)),
    )
    terms = importance_weights(levels.policy(0), logs) * logs.reward
    out: dict[Key, Answer] = {}
    rows = identities(logs, "row")
    readable = []
    for place in range(max(NAMES)):
        secret = rng.secret(0, "split", f"name {place}")
        which = keyed_folds(rows, FRACTIONS, secret)
        readable.append(float(terms[which < 2].mean()))
        if place + 1 in (1, *NAMES):
            best = f"name {int(np.argmin(readable))}"
            passed = certify(levels, split(logs, best), rules, Reads()).passed
            words = "one name" if place == 0 else f"best of {place + 1} names"
            out["tempting", f"folds by the campaign's name, {words}", "normal"] = judged(passed)
    reads = Reads(secret=rng.secret(0, "names"))
    seen = {}
    for place in range(max(NAMES)):
        registration = reads.register(logs)
        if registration.secret not in seen:
            folds = three_folds(logs, registration, campaign=f"name {place}")
            weights = importance_weights(levels.policy(0), folds.learn)
            seen[registration.secret] = (float((weights * folds.learn.reward).mean()), folds)
    _, folds = min(seen.values(), key=lambda pair: pair[0])
    out["strict", "name shopping, best of 100", "normal"] = judged(
        issued(levels, folds, rules, reads)
    )
    return out


def redeclared(logs: LoggedData, pi: FloatArray) -> Iterator[tuple[str, Declared]]:
    """The same rows, declared in other ways."""
    catalogue = logs.catalogue
    yield "r_max", Declared(replace(logs, r_max=1.0000001), pi)
    nudged = np.asarray(logs.contexts + np.float32(1e-6), dtype=np.float32)
    yield "feature", Declared(replace(logs, contexts=nudged), pi)
    more = Catalogue(np.arange(len(catalogue) + 1), np.append(catalogue.novel, True))
    wider = np.column_stack([pi, np.zeros(len(pi))])
    yield "item", Declared(replace(logs, catalogue=more), wider)
    columns = {**logs.columns, "extra": np.arange(len(logs))}
    yield "column", Declared(replace(logs, columns=columns), pi)
    ids = np.arange(len(logs))
    yield "unit", Declared(replace(logs, unit=ids, units=ids.astype(str)), pi)
    yield "fractions", Declared(logs, pi, (0.3, 0.1, 0.6))
    yield "fewer rows", Declared(logs.take(np.arange(len(logs) // 20, len(logs))), pi)
    yield "order", Declared(logs.take(np.argsort(logs.context, kind="stable")), pi)


def declarations(draw: np.random.Generator) -> Outcome:
    """After a verdict that failed, the same rows come back, declared in other ways."""
    world, pi = below_floor()
    plain = world.logs(world.pi0, SHOPPED, draw)
    out: dict[Key, Answer] = {}
    rules = rules_for(world, "normal", Floor(None, world.floor))
    for words, logs in (("rows without times", plain), ("rows with times", timed(plain))):
        every = [Declared(logs, pi), *(declared for _, declared in redeclared(logs, pi))]
        for kind, retries in (("refused", False), ("retries, counted", True)):
            reads = Reads(retries=retries, secret=rng.secret(0, "declared", words))
            out["strict", f"declaration shopping, {kind}", words] = one_after_another(
                every, rules, [reads] * len(every)
            )
        shopped = [*every, *_named_anew(logs, pi)]
        anew = [Reads(secret=_anew(place)) for place in range(len(every))]
        anew += [Reads(secret=_anew(0)) for _ in range(TRIED)]
        out["tempting", "declaration shopping, each taken for new", words] = one_after_another(
            shopped, rules, anew
        )
    return out


def _anew(place: int) -> str:
    """The secret of a registry that takes rows for new."""
    return rng.secret(0, "declared anew", place)


def _named_anew(logs: LoggedData, pi: FloatArray) -> list[Declared]:
    """The rows with other ids as their units: those whose learn and select rows look worst."""
    levels = Declared(logs, pi).levels
    terms = importance_weights(levels.policy(0), logs) * logs.reward
    rows = np.arange(len(logs))
    ids = [rows + len(logs) * (place + 1) for place in range(NAMED)]
    readable = [
        keyed_folds(mix64(keys_of_ids(named)), FRACTIONS, _anew(0)) < 2  # as units name rows
        for named in ids
    ]
    means = [float(terms[mine].mean()) for mine in readable]
    worst = np.argsort(means)[:TRIED].tolist()
    return [Declared(replace(logs, unit=rows, units=ids[place]), pi) for place in worst]


def one_after_another(
    every: Sequence[Declared], rules: Rules, registries: Sequence[Reads]
) -> Answer:
    """Ask for one certificate after another until one passes; refused if all later ones were.

    Args:
        every: what is asked for.
        rules: the rules.
        registries: where each is registered and counted.
    """
    refusals = 0
    for declared, reads in zip(every, registries, strict=True):
        try:
            folds = reads.folds(declared.logs, declared.fractions)
            if issued(declared.levels, folds, rules, reads):
                return "wrong"
        except DepsueError:
            refusals += 1
    return "refused" if refusals == len(every) - 1 else "failed"


def encodings(draw: np.random.Generator) -> Outcome:
    """Other units before the first verdict: the one whose learn and select rows look worst."""
    world, pi = below_floor()
    logs = world.logs(world.pi0, SHOPPED, draw)
    rules = rules_for(world, "normal", Floor(None, world.floor))
    out: dict[Key, Answer] = {}
    for words, retries in (("refused", False), ("retries, counted", True)):
        reads = Reads(retries=retries, secret=rng.secret(0, "encodings"))
        splits: list[tuple[float, Folds]] = []
        for place in range(1 + ENCODINGS):
            ids = np.arange(SHOPPED) + 1_000_000 * place
            try:
                folds = reads.folds(replace(logs, unit=np.arange(SHOPPED), units=ids))
            except DepsueError:
                continue
            weights = importance_weights(Declared(logs, pi).levels.policy(0), folds.learn)
            splits.append((float((weights * folds.learn.reward).mean()), folds))
        _, best = min(splits, key=lambda pair: pair[0])
        passed = issued(Declared(logs, pi).levels, best, rules, reads)
        answer = judged(passed)
        key: Key = ("strict", f"unit shopping before a verdict, {words}", "normal")
        out[key] = "refused" if len(splits) == 1 and not passed else answer
    return out


def appended(draw: np.random.Generator) -> Outcome:
    """After a verdict that failed rows are appended, and a certificate is asked for again."""
    world, [levels, *_] = rivals()
    pi = world.distribution(levels.policy(0))
    logs = timed(world.logs(world.pi0, MOST, draw))
    rules, secret = rules_for(world, "normal", Floor(None, world.floor)), rng.secret(0, "appended")
    ends = np.geomspace(MOST // 10, MOST, LOOKS).astype(int)
    out: dict[Key, Answer] = {}
    known = Registration("audit", secret, "time", FRACTIONS, "appended")
    passed = (
        certify(levels, three_folds(logs.take(np.arange(n)), known), rules, Reads()).passed
        for n in ends.tolist()
    )
    out["tempting", "appended rows, each file taken for new", "normal"] = judged(any(passed))
    every = [Declared(logs.take(np.arange(n)), pi) for n in ends[:: LOOKS // 4].tolist()]
    for kind, retries in (("refused", False), ("retries, counted", True)):
        reads = Reads(retries=retries, secret=secret)
        out["strict", f"appended rows, {kind}", "normal"] = one_after_another(
            every, rules, [reads] * len(every)
        )
    return out


def estimated(draw: np.random.Generator) -> Outcome:
    """Propensities that were estimated, by frequencies that leave the context out.

    pi0 shows an action more often where it earns more. A policy that likes what earns most then
    has weights that are too large. What is promised is false, and never called strict.
    """
    world = near_miss_world("plain")
    tilted = world.tilt(rng.generator(0, "estimated"), strength=1.5)
    tilted[:, world.catalogue.novel] = 0
    world = replace(world, pi0=tilted)
    pi = world.mixed(tilted, (1 - MISS) * world.floor)
    logs = world.logs(world.pi0, FEWER, draw)
    estimating = draw.random(FEWER) < 0.2
    counts = np.bincount(logs.action[estimating], minlength=len(logs.catalogue))
    rates = np.maximum(counts, 1) / counts.sum()
    guessed = replace(logs, propensity=np.minimum(rates[logs.action], 1.0))
    honest = replace(guessed, estimating=estimating)
    out: dict[Key, Answer] = {}
    rules = Rules((Promise(Floor(None, world.floor)),), DELTA, "normal", clip=20.0)
    for key, rows in (
        (("strict", "estimated propensities, declared", "normal"), honest),
        (("tempting", "estimated propensities, called logged", "normal"), guessed),
    ):
        declared = Declared(rows, pi)
        reads = Reads(secret=rng.secret(0, "estimated"))
        certificate = certify(declared.levels, reads.folds(rows), rules, reads)
        strict = certificate.kind == "strict"
        out[key] = judged(certificate.passed) if strict else "refused"  # type: ignore[index]
    return out


TRIALS: dict[str, Trial] = {
    "names": names,
    "declarations": declarations,
    "encodings": encodings,
    "appended": appended,
    "estimated": estimated,
}
"""Each draws its own logs and says what came of every certificate."""
