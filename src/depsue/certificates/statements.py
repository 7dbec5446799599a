"""What a verdict rests on, in words: each line that a certificate states, assumed or a fact."""

from __future__ import annotations

from depsue.certificates.folds import Folds, StreamedFolds, words_on_units
from depsue.certificates.pooling import words_on_pooling
from depsue.certificates.rules import MixtureLadder, Rules
from depsue.data.logs import LoggedData
from depsue.data.partitions import StreamedFold
from depsue.plural import counted


def _of_account(rules: Rules) -> list[str]:
    """What a verdict in `cumulative` promises, and what its account rests on, in words."""
    if not rules.credits:
        return []
    absolute = [p.name for p in rules.promises if p.floor.ratio is None]
    relative = [p.name for p in rules.promises if p.floor.ratio is not None]
    words = []
    if absolute:
        words.append(
            f"{', '.join(absolute)}: the promise is about what was realised so far plus what is "
            "expected of this deployment, together, per decision"
        )
    if relative:
        words.append(
            f"{', '.join(relative)}: the promise is about what is expected of this deployment and "
            "of all before it, together, per decision"
        )
    words.append(
        "every decision that earlier deployments served is in the account, fallbacks and rollbacks "
        "included; those without a row count at their worst"
    )
    most = max(credit.decisions for credit in rules.credits.values())
    if most:
        words.append(f"no more than {most:,} decisions are served before the next verdict")
    debts = [name for name, credit in rules.credits.items() if credit.value < 0]
    if debts:
        words.append(
            f"there is a debt ({', '.join(debts)}): the promise needs all of the "
            f"{most:,} declared decisions, and a round that ends early breaks it"
        )
    if any(p.segment for p in rules.promises):
        words.append("each segment keeps its share of all decisions")
    return words


def estimated(rows: LoggedData | StreamedFold) -> bool:
    """Whether the propensities of these rows were estimated."""
    if isinstance(rows, LoggedData):
        return rows.estimating is not None
    return rows.stream.mapping.estimates


def assumptions_of(
    folds: Folds | StreamedFolds, rules: Rules, ladder: MixtureLadder
) -> tuple[str, ...]:
    """What the verdict rests on, in words."""
    rows = folds.certify
    words = [
        *_on_registration(folds),
        "every estimated propensity is near enough to the probability with which its action was "
        "drawn: this is no strict certificate"
        if estimated(rows)
        else "every logged propensity is the probability with which its action was drawn"
        if rules.factor == 1
        else "the probability with which an action was drawn is logged, but not to the digit",
        f"rewards lie between 0 and {rows.r_max:g}",
    ]
    words += [
        f"{promise.reward} lies between 0 and {promise.r_max:g}"
        for promise in rules.promises
        if promise.reward is not None
    ]
    if rows.unit is None:
        words.append(
            "rows are independent draws; the promise is about contexts like the logged ones"
        )
    else:
        words.append(
            "rows of one unit are the sample; units are independent, and the promise is about the "
            "mean over units"
        )
    words += _on_requests(rows, ladder)
    words += words_on_units(folds.units)
    words.append("what is served meets the same users and rewards as the logs")
    if columns := sorted({p.segment[0] for p in rules.promises if p.segment is not None}):
        words.append(
            f"segments ({', '.join(columns)}) are known before the decision, and make up the same "
            "shares of what is served as of the logs"
        )
    words.append(
        "the number of rows was fixed before their rewards were seen"
        if rules.fixed_length
        else f"fact: the round was ended by choice; {rules.bound} is used, which holds at any time"
        if not rules.erased
        else f"fact: {rules.bound} is used, which holds at any time, and for missing values at "
        "their lowest"
    )
    if rules.erased:
        words.append(
            f"fact: {counted(rules.erased, 'value')} of the certifying rows were erased before the "
            "verdict, on request of users; each counts at its lowest"
        )
    if not rules.fixed_length:
        words.append(
            "who ended the round had seen rewards of its learn and select rows only, or the "
            "candidate does not depend on when it ended"
        )
    words += [
        "fact: nothing depends on the order of the rows",
        "fact: delta is the error rate of this verdict; a campaign with K such verdicts errs in "
        "some of them up to K times as often",
    ]
    known = {name: top for name, top in rules.ceilings.items() if not top.is_r_max}
    if len(known) < len(rules.ceilings):
        words.append(
            "fact: what logged these rows kept no share of pi0, and no ceiling on V(pi0) is left: "
            "relative floors are taken of the largest reward"
        )
    if known:
        sources = "; ".join(
            f"{name}: {ceiling.n:,} values of the logs {ceiling.data[:12]}"
            for name, ceiling in known.items()
        )
        words.append(
            "pi0's value has not changed since the rows that the ceiling was taken from "
            f"({sources})"
        )
    words += _of_account(rules)
    words += words_on_pooling(folds.strata)
    if rules.control is not None and not folds.strata:
        words.append("every row was drawn from the distribution that its logging policy answers")
    if rules.assumed is not None:
        words += rules.assumed.rung.words
    elif rules.marginal is not None:
        words.append(
            "within a group of actions the choice has no effect on the reward, given the context: "
            "a novel action is worth what its group is"
        )
    return (*words, *rules.assumptions)


def _on_requests(rows: LoggedData | StreamedFold, ladder: MixtureLadder) -> list[str]:
    """What a verdict rests on where requests bring candidates, or pi0's choice, in words."""
    words = []
    sets = rows.candidates if isinstance(rows, LoggedData) else None
    if sets is not None:
        words.append(
            "requests bring candidates as they did while the rows were logged: another retrieval "
            "or another stock makes other requests"
        )
        if sets.pi0 is not None:
            words.append(
                "pi0's probabilities of the candidates, as requests bring them, are those that it "
                "shows them with"
            )
    if any(getattr(part, "rests_on_choice", False) for part in ladder.parts):
        words += [
            "pi0 shows what it says that it chose, with the probability that it says",
            "fact: in rows that pi0 drew only old items count beside pi0, in others only new ones, "
            "so each item counts once",
        ]
    return words


def _on_registration(folds: Folds | StreamedFolds) -> list[str]:
    """What no ledger can see, in words."""
    registration = folds.registration
    words = [
        f"no verdict on these rows was asked of another ledger than {registration.ledger}, and the "
        "rows are as they were logged, not chosen by their rewards",
        "nobody looked at the rewards of the certifying rows before all was fixed, although these "
        "rows are older than the candidate",
    ]
    if registration.kind == "unit":
        words.append(
            "the ids of units, which folds hang on, were given without knowing rewards, and a unit "
            "has the same id in every round"
        )
    if registration.kind == "decision":
        words.append(
            "the ids of decisions, which folds hang on, were given without knowing rewards"
        )
    if not registration.drawn:
        words.append("the secret of the folds was given, not drawn: it was chosen without the rows")
    if registration.declared_fresh:
        words.append(
            "the rows are new: this was declared, for without times nothing tells them from rows "
            "that were registered before"
        )
    return words
