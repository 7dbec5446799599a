"""The frozen record that a policy passed, or did not: all that its verdict rests on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from depsue import codec
from depsue._version import __version__
from depsue.assumptions import RungName
from depsue.certificates.assumed import AssumedFacts
from depsue.certificates.folds import WHOLE, Registration, Stratum, UnitRows
from depsue.errors import FileError
from depsue.promises import Promise, upgraded_promise

Kind = Literal["strict", "estimated", "paper"] | RungName
"""Of a certificate: how much it claims, and on what."""
LARGEST_FILE = 1 << 20
RULES = 2
"""The version of the rules by which verdicts are reached. By the first, folds hung on the
campaign's name and several promises shared delta."""


@dataclass(frozen=True)
class Verdict:
    """One promise, tested.

    Args:
        promise: what was promised.
        delta: what it was tested at.
        n: independent values (rows, or units) that were read.
        mean: the mean of the terms.
        bound: the lower bound on their expectation.
        need: what the bound had to reach.
        credit: what earlier deployments earned, per decision to be served; part of `need`.
        ceiling: the upper bound on V(pi0) that a relative floor was taken of; None if paired.
        constants: of the bound.
        proof: why the terms do not overstate.
        fewest: what the certifying rows, together, had to earn above the floor for the credit to
            count, fixed before they were read; None where it does not rest on that.
        surplus: what they earned above the floor; None without `fewest`.
        shown: False for a failed verdict whose figures are withheld; they are 0 then.
        worth: by a declared assumption, a lower bound on what a decision of the mixture's last
            part earns by new items; None where nothing of the kind is assumed. Its share lowers
            `need`.
    """

    promise: Promise
    delta: float
    n: int
    mean: float
    bound: float
    need: float
    credit: float
    ceiling: float | None
    constants: dict[str, Any]
    proof: str
    fewest: float | None = None
    surplus: float | None = None
    shown: bool = True
    worth: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the bound reached the need, and what the need rests on was earned."""
        return self.shown and self.bound >= self.need and self.credit_counts

    def withheld(self) -> Verdict:
        """The verdict without what the rows said: that it failed is all that may be known.

        Where further attempts on the same rows may follow, figures of a failed one would teach the
        next: with twenty printed means, 65% of just-missed floors passed in the end.
        """
        hidden: dict[str, Any] = {"constants": {}, "surplus": None, "worth": None}
        return replace(self, mean=0.0, bound=0.0, shown=False, **hidden)

    @property
    def credit_counts(self) -> bool:
        """Whether the certifying rows earned what the credit takes them to have earned."""
        return self.fewest is None or (self.surplus is not None and self.surplus >= self.fewest)

    @property
    def alone(self) -> bool:
        """Whether the bound reached the floor itself, without what earlier deployments earned."""
        return self.bound >= self.need + max(self.credit, 0.0)

    @property
    def paired(self) -> bool:
        """Whether the bound is one on V(pi) - rho V(pi0), not on V(pi)."""
        return self.promise.floor.ratio is not None and self.ceiling is None


@dataclass(frozen=True)
class DeltaParts:
    """How the error budget of a verdict was divided, each part by the name of its promise.

    Parts for ceilings and margins add up. All promises must pass, so each is tested at all that is
    left: only the test of a promise that is broken can err.

    Args:
        tests: what each promise was tested at.
        ceilings: what upper bounds on V(pi0) took.
        margins: what lower bounds on the margin took.
        items: what a lower bound on what new items are worth took, with the promise's own test.
    """

    tests: dict[str, float]
    ceilings: dict[str, float] = field(default_factory=dict)
    margins: dict[str, float] = field(default_factory=dict)
    items: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = {f"ceiling on V(pi0), {name}": part for name, part in self.ceilings.items()}
        parts |= {f"worth of new items, {name}": part for name, part in self.items.items()}
        parts |= {f"margin, {name}": part for name, part in self.margins.items()}
        return ", ".join(f"{name} {part:.4g}" for name, part in (parts | self.tests).items())


@dataclass(frozen=True)
class Certificate:
    """What was tested, on what, by which rules, and how it came out.

    Args:
        kind: "strict"; the name of the declared assumption that it rests on beyond that
            (`depsue.assumptions`); "estimated", the same on propensities that were estimated, so
            that delta holds only as far as they are right; or "paper" (Eq. 4 and Eq. 9 as
            published, whose guarantee has gaps).
        campaign: its name; a label.
        round: the round that the certifying rows come from.
        data: SHA-256 of that round's rows.
        fractions: shares of the folds.
        attempt: which verdict on rows of this family it was, from 1.
        retries: whether further attempts were declared beforehand.
        delta: the error budget of the whole verdict.
        spent: delta's parts.
        bound: which bound.
        clip: the largest weight that counted.
        largest: the declared largest pi0 / p.
        shares: of the mixture's parts, in the policy that this is about.
        tested: how many levels were tested, in an order that was fixed beforehand.
        listed: how many were listed.
        policy: SHA-256 of the policy's settings and arrays; None if it cannot be saved.
        verdicts: one for each promise.
        assumptions: what the verdict rests on, in words; "fact:" marks what holds by itself.
        version: of depsue.
        control: coefficients of the control variate, by promise; None without one.
        control_most: what its predictions were clipped at.
        model: SHA-256 of the reward model that it rests on; None if it cannot be saved.
        groups: SHA-256 of the groups of actions, where weights are marginal.
        units: where units have several rows, which of them the promise is about: "all rows", or
            the "first row" of each; None where units have one row each, or rows stand for
            themselves.
        group: (k, K): the verdict read the k-th of K groups of the certifying units, each of which
            is read by one verdict of the campaign; likewise of rows, where some are reserved.
        path: shares of all levels that were tested, in their order; all up to `shares` passed.
        rules: the version of the rules that it was reached by: `RULES` today.
        registration: what the folds hang on: the ledger, its secret, by what rows are named; None
            for certificates without such folds (paper, or by older rules).
        fixed_length: whether the number of rows was fixed before their rewards were seen.
        reserve: the share of its certifying rows that the round reserves for later verdicts.
        strata: rows of earlier rounds that were reserved for this verdict, and the newest last:
            what was pooled; () where the newest rows were read alone.
        erased: values that users had erased before the verdict; each counted at its lowest.
        assumed: what was declared beyond the logs, with its constants; None where nothing was.
    """

    kind: Kind
    campaign: str
    round: int
    data: str
    fractions: tuple[float, ...]
    attempt: int
    retries: bool
    delta: float
    spent: DeltaParts
    bound: str
    clip: float
    largest: float
    shares: tuple[float, ...]
    tested: int
    listed: int
    policy: str | None
    verdicts: tuple[Verdict, ...]
    assumptions: tuple[str, ...]
    version: str = __version__
    control: dict[str, float] | None = None
    control_most: float | None = None
    model: str | None = None
    groups: str | None = None
    path: tuple[tuple[float, ...], ...] = ()
    rules: int = RULES
    registration: Registration | None = None
    units: UnitRows | None = None
    group: tuple[int, int] = WHOLE
    fixed_length: bool = True
    reserve: float = 0.0
    strata: tuple[Stratum, ...] = ()
    erased: int = 0
    assumed: AssumedFacts | None = None

    @property
    def novelty(self) -> float:
        """nu of the policy: how often it shows what the mixture's last part does of new items."""
        return self.shares[-1] * (1.0 if self.assumed is None else self.assumed.reach)

    @property
    def passed(self) -> bool:
        """Whether every promise passed."""
        return all(verdict.passed for verdict in self.verdicts)

    def __str__(self) -> str:
        claim = f"errs at most {self.delta:g} of the time"
        if self.kind == "paper":
            claim = f"delta {self.delta:g} as published, not guaranteed: see the gaps"
        if self.kind == "estimated":
            claim = f"delta {self.delta:g} is not guaranteed: propensities were estimated"
        if self.assumed is not None:
            claim += f", {self.assumed.rung.in_words}"
        head = (
            f"{self.kind} certificate, campaign {self.campaign!r}, on rows of round {self.round}"
            f"{_with_earlier(self.strata)}: {'passed' if self.passed else 'failed'} ({claim})"
        )
        lines = [head]
        for v in self.verdicts:
            if not v.shown:
                lines.append(
                    f"  {v.promise.name}: floor {v.promise.floor}, {v.n:,} values; the figures are "
                    "withheld while further attempts on these rows may follow"
                )
                continue
            sign = ">=" if v.bound >= v.need else "<"
            lines.append(
                f"  {v.promise.name}: floor {v.promise.floor}, {_of(v)}bound {v.bound:.5f} {sign} "
                f"need {v.need:.5f} at delta {v.delta:g}, {v.n:,} values, {self.bound}"
            )
            if v.worth is not None and self.assumed is not None:
                lines.append(
                    f"    the need counts new items: what {self.assumed.tested:,} old ones show, "
                    f"these are worth at least {v.worth / self.assumed.reach:.5f} where shown"
                )
            if v.credit:
                source = "the margin" if v.credit > 0 else "the debt"
                lines.append(
                    f"    the need counts {source} of earlier deployments: {v.credit:+.5f} per "
                    "decision to come"
                )
            if not v.credit_counts:
                lines.append(
                    f"    failed: the certifying rows earned {v.surplus or 0.0:+.5g} above the "
                    f"floor, and the margin rests on {v.fewest:+.5g}, fixed before they were read"
                )
        for words in self.assumptions:
            plain = words.startswith(("gap:", "fact:"))
            lines.append(f"  {words}" if plain else f"  assumes: {words}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """The certificate as JSON."""
        return codec.encode(self, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """The certificate that `to_json` wrote, in this version or an earlier one."""
        return codec.decode(text, cls, what="a certificate", upgrade=_upgraded)

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_text(self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read it from a file."""
        try:
            with Path(path).open() as file:
                text = file.read(LARGEST_FILE)
        except (OSError, UnicodeDecodeError) as problem:
            raise FileError(
                "the file must be a certificate", found=f"{path}: {problem}", cure="check the path"
            ) from problem
        return cls.from_json(text)


def _upgraded(values: Any) -> Any:
    """From version 0.1, whose promises and parts of delta were flat, and from the first rules."""
    verdicts = [
        {**verdict, "promise": upgraded_promise(verdict["promise"])}
        for verdict in values["verdicts"]
    ]
    spent = values["spent"]
    if not isinstance(spent.get("tests"), dict):
        spent = _upgraded_parts(spent, {verdict["promise"]["name"] for verdict in verdicts})
    if "rules" not in values:
        values = {**values, "rules": 1}
    return {**values, "verdicts": verdicts, "spent": spent}


def _upgraded_parts(spent: dict[str, float], promises: set[str]) -> dict[str, dict[str, float]]:
    """Parts of delta whose names said what they were spent on."""
    parts: dict[str, dict[str, float]] = {"tests": {}, "ceilings": {}, "margins": {}}
    prefixes = {"ceilings": "ceiling on V(pi0), ", "margins": "margin, "}
    for name, part in spent.items():
        kinds = [kind for kind, prefix in prefixes.items() if name.startswith(prefix)]
        if name in promises or not kinds:
            parts["tests"][name] = part
        else:
            parts[kinds[0]][name.removeprefix(prefixes[kinds[0]])] = part
    return parts


def _with_earlier(strata: tuple[Stratum, ...]) -> str:
    """Which other rows were read, in words."""
    if not strata:
        return ""
    rows = sum(stratum.rows for stratum in strata[:-1])
    rounds = ", ".join(str(stratum.round) for stratum in strata[:-1])
    return f" and {rows:,} that were reserved in round {rounds}"


def _of(verdict: Verdict) -> str:
    """What the bound is on, where it is not the value itself."""
    return "of the value less that floor: " if verdict.paired else ""
