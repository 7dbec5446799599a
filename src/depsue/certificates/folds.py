"""Three folds: rows to learn from, rows to choose by, and rows that one verdict reads.

A row's fold is a keyed hash of its identity, by the secret of its `Registration`. Register logs
first (`depsue.certificates.registration`), then split them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

import numpy as np

from depsue.data.checks import IntArray
from depsue.data.folds import checked_fractions
from depsue.data.identity import IdentityKind, identities, keyed_folds
from depsue.data.logs import LoggedData
from depsue.data.partitions import LogStream, StreamedFold
from depsue.errors import DataError, require, short

UnitRows = Literal["all rows", "first row"]
"""Of units with several rows: which of them a promise is about."""
FRACTIONS = (0.35, 0.05, 0.6)
"""Learn, select, certify: the certificate is what needs rows."""
NAMES = ("learn", "select", "certify")
MOST_TIES = 0.001
"""Share of units whose first two rows may have one time; the earlier in the file is then first."""
WHOLE = (1, 1)
"""The one group of a single verdict."""


@dataclass(frozen=True)
class Registration:
    """What the folds of some rows hang on, and which verdicts count together.

    Args:
        ledger: the id of the registry that drew the secret.
        secret: 64 hexadecimal digits; printed on certificates, so that anyone can split again.
        kind: by what a row is named: its unit, the id of its decision, its time (with context,
            action and propensity), or its number in the file.
        fractions: the shares of learn, select and certify.
        family: names the logs that share rows with these; their verdicts share one delta.
        drawn: whether the registry drew the secret; False if it was given.
        encodings: how often rows of the family were registered with other folds: each counts as an
            attempt.
        declared_fresh: whether a user declared that the rows are new, where only their contents
            could tell.
    """

    ledger: str
    secret: str
    kind: IdentityKind
    fractions: tuple[float, float, float]
    family: str
    drawn: bool = True
    encodings: int = 0
    declared_fresh: bool = False

    def __post_init__(self) -> None:
        digits = isinstance(self.secret, str) and len(self.secret) == 64
        require(
            digits and all(digit in "0123456789abcdef" for digit in self.secret),
            "a secret has 64 hexadecimal digits",
            found=short(self.secret),
            cure="let the ledger draw it, or take secrets.token_hex(32)",
        )
        object.__setattr__(self, "fractions", checked_shares(self.fractions))


def checked_shares(fractions: Sequence[float]) -> tuple[float, float, float]:
    """The shares of learn, select and certify, checked to be three that sum to 1."""
    require(
        len(fractions) == 3,
        "there are three folds: learn, select, certify",
        found=short(fractions),
        cure=f"the default is {FRACTIONS}",
    )
    a, b, c = checked_fractions(fractions).tolist()
    return a, b, c


@dataclass(frozen=True)
class Stratum:
    """Rows of one round among those that a pooled verdict reads.

    Args:
        round: which deployment produced them.
        rows: how many the verdict reads.
        reserved: how many could be read: the rest were left out by lot.
        data: SHA-256 of all rows of the round.
        policy: SHA-256 of the policy that drew them; None if it cannot be saved.
        registration: what their folds hang on.
    """

    round: int
    rows: int
    reserved: int
    data: str
    policy: str | None
    registration: Registration


@dataclass(frozen=True, eq=False)
class Folds:
    """The three folds of one round's logs.

    Args:
        learn: fits the reward model.
        select: chooses candidates, constants and the bound; the only fold that planning reads.
        certify: read by one verdict.
        data: SHA-256 of all rows.
        registration: what the split hangs on.
        round: which deployment produced the rows.
        campaign: a label, without effect on the split.
        units: where units have several rows: which of them are in the folds, and what the promise
            is about; None where each has one, or where rows stand for themselves.
        group: (k, K): the certifying units are divided into K groups, and `certify` is the k-th.
            Units of groups before it are in `learn`; those of later groups are in no fold.
            Likewise for rows without units of which a share is reserved.
        reserve: the share of its certifying rows that the round reserves for later verdicts.
        strata: where rows that earlier rounds reserved are in `select` and `certify`: what was
            pooled, the newest round last (`depsue.certificates.pooling`).
        erased: values of `certify` that were erased and not read: each counts at its lowest.
    """

    learn: LoggedData
    select: LoggedData
    certify: LoggedData = field(repr=False)
    data: str
    registration: Registration
    round: int
    campaign: str = ""
    units: UnitRows | None = None
    group: tuple[int, int] = WHOLE
    reserve: float = 0.0
    strata: tuple[Stratum, ...] = ()
    erased: int = 0


@dataclass(frozen=True, eq=False)
class StreamedFolds:
    """The same of a `LogStream`: folds whose rows are read a partition at a time."""

    learn: StreamedFold
    select: StreamedFold
    certify: StreamedFold
    data: str
    registration: Registration
    round: int
    campaign: str = ""
    units: UnitRows | None = None
    group: tuple[int, int] = WHOLE
    reserve: float = 0.0
    strata: tuple[Stratum, ...] = ()
    erased: int = 0


@overload
def three_folds(
    logs: LoggedData,
    registration: Registration,
    *,
    campaign: str = "",
    units: UnitRows | None = None,
    group: tuple[int, int] = WHOLE,
    reserve: float = 0.0,
) -> Folds: ...
@overload
def three_folds(
    logs: LogStream,
    registration: Registration,
    *,
    campaign: str = "",
    units: UnitRows | None = None,
    group: tuple[int, int] = WHOLE,
    reserve: float = 0.0,
) -> StreamedFolds: ...
def three_folds(
    logs: LoggedData | LogStream,
    registration: Registration,
    *,
    campaign: str = "",
    units: UnitRows | None = None,
    group: tuple[int, int] = WHOLE,
    reserve: float = 0.0,
) -> Folds | StreamedFolds:
    """Split one round's logs: the same rows fall the same way in memory and as a stream.

    Args:
        logs: rows of one round.
        registration: what a ledger, or `Reads`, gave them.
        campaign: a label for the certificate.
        units: where some unit has several rows: "all rows" declares that their number does not
            depend on what the unit was shown; "first row" promises the first row of each only.
        group: (k, K), of the k-th of K verdicts of a campaign whose rows have units: users come
            back, and each certifies in one verdict.
        reserve: of rows without units: the share of the certifying ones that is reserved for the
            verdicts after the round's own, in equal parts. Round j's own verdict is j + 1.
    """
    require(
        isinstance(registration, Registration),
        "logs are registered before they are split",
        found=short(registration),
        cure="reads.folds(logs), or three_folds(logs, reads.register(logs))",
    )
    rounds = _rounds(logs)
    require(
        len(rounds) == 1,
        "a verdict is about the logs of one round",
        found=f"rounds {rounds}",
        cure="certify on the newest round; the rows of earlier ones are reused for training",
    )
    k, groups = group
    require(
        1 <= k <= groups,
        "a verdict reads one of K groups of units",
        found=f"group {short(group)}",
        cure="(1, 1) is all of them",
    )
    how = (registration.fractions, registration.secret, registration.kind)
    declared = declared_units(logs, units)
    if isinstance(logs, LogStream):
        require(
            declared != "first row",
            "the first row of each unit is taken in memory",
            found="a stream of partitions",
            cure="read the logs into memory, or give files with one row for each unit",
        )
        require(
            group == WHOLE,
            "reserved rows and groups of units are taken in memory",
            found=f"group {short(group)} of a stream of partitions",
            cure="read the logs into memory, as campaigns do",
        )
        one, two, three = logs.keyed_split(*how)
        return StreamedFolds(
            one, two, three, logs.hash, registration, rounds[0], campaign, declared
        )
    require_identity(logs, registration.kind)
    which = _folds_before(logs, registration, group, reserve)
    if declared == "first row":
        which = np.where(logs.place_in_unit == 0, which, -1)
    parts = []
    for number, name in enumerate(NAMES):
        mine = which == number
        if not mine.any():
            raise DataError(
                "every fold needs at least one row",
                column=registration.kind,
                found=f"the fold {name} is empty with {len(logs):,} rows",
                cure="collect more data",
            )
        parts.append(logs.take(mine))
    learned, selected, certified = parts
    return Folds(
        learned,
        selected,
        certified,
        logs.hash,
        registration,
        rounds[0],
        campaign,
        declared,
        group if registration.kind == "unit" or reserve else WHOLE,
        0.0 if registration.kind == "unit" else reserve,
        erased=sum(erasure.certifying for erasure in logs.erased),
    )


def _folds_before(
    logs: LoggedData, registration: Registration, group: tuple[int, int], reserve: float = 0.0
) -> IntArray:
    """(n,) the fold of every row when verdict k of K is to come; -1 if it is for a later one.

    Which verdict reads a certifying row is a keyed hash of what names it. Of an earlier round,
    certifying rows are those reserved for verdict k, and select rows as large a share of those that
    chose then; the other select rows teach by now.
    """
    k, groups = group
    learn, select, certify = range(3)
    ids = identities(logs, registration.kind)
    which = keyed_folds(ids, registration.fractions, registration.secret)
    if logs.estimating is not None:  # what weights were made of is not read by a verdict
        which[logs.estimating & (which == certify)] = learn
    first, shares = 1, (1 / groups,) * groups
    if registration.kind != "unit":
        first = _rounds(logs)[0] + 1
        later = groups - first
        shares = (1 - reserve, *[reserve / later] * later) if reserve and later > 0 else ()
    if len(shares) < 2:
        return which
    secret = hashlib.sha256(f"depsue groups of units {registration.secret}".encode()).hexdigest()
    verdict = first + keyed_folds(ids, shares, secret)
    certifying = which == certify
    if registration.kind != "unit" and k > first:
        which[(which == select) & (verdict != k)] = learn
    which[certifying & (verdict < k)] = learn
    which[certifying & (verdict > k)] = -1
    return which


def teaching_rows(
    logs: LoggedData, registration: Registration, group: tuple[int, int], reserve: float = 0.0
) -> LoggedData | None:
    """Rows of an earlier round that may be read before verdict k of K; None if there are none.

    Users come back, so what a policy learned must not know the units of a verdict to come: those
    of the groups k and later. Rows without units are not met again, and all of them teach but those
    that are reserved for verdict k or a later one.

    Args:
        logs: rows of an earlier round.
        registration: what their folds hang on.
        group: (k, K).
        reserve: as for `three_folds`.
    """
    if registration.kind != "unit" and not reserve:
        return logs
    which = _folds_before(logs, registration, group, reserve)
    mine = which == NAMES.index("learn")
    if registration.kind == "unit":
        mine |= which == NAMES.index("select")
    return logs.take(mine) if mine.any() else None


def reserved_rows(
    logs: LoggedData, registration: Registration, group: tuple[int, int], reserve: float
) -> tuple[LoggedData, LoggedData] | None:
    """Rows of an earlier round for verdict k of K, which taught nothing: to choose by, to certify.

    None where there are none of either kind. Arguments as for `teaching_rows`.
    """
    which = _folds_before(logs, registration, group, reserve)
    select, certify = (which == NAMES.index(name) for name in ("select", "certify"))
    if not (select.any() and certify.any()):
        return None
    return logs.take(select), logs.take(certify)


def declared_units(logs: LoggedData | LogStream, units: UnitRows | None) -> UnitRows | None:
    """What was declared of units with several rows, if there are any; else None.

    Args:
        logs: the rows.
        units: what was declared; None refuses units with several rows.
    """
    if isinstance(logs, LogStream):
        known, rows = logs.facts.units if logs.mapping.unit else 0, logs.facts.rows
    else:
        known, rows = 0 if logs.units is None else len(logs.units), len(logs)
    if not 0 < known < rows:
        return None
    require(
        units is not None,
        "where units have several rows, you must declare which of them the promise is about",
        found=f"{rows:,} rows of {known:,} units, and nothing declared",
        cure="--units first-row (units='first row') promises the first row of each unit; "
        "--units all-rows (units='all rows') declares that the number of rows of a unit does not "
        "depend on what it was shown, which is tested; or leave the unit out of the mapping where "
        "rows are independent",
    )
    if units == "first row" and isinstance(logs, LoggedData):
        _require_first_rows(logs)
    return units


def _require_first_rows(logs: LoggedData) -> None:
    """Refuse units whose first row cannot be told: the order of a file may be anybody's choice."""
    cure = "name a column of times that are fine enough; or give one row for each unit"
    rule = "the time of a row tells which row of a unit is the first"
    if logs.time is None or logs.unit is None:
        require(False, rule, found="no times in the logs", cure=cure)
        return
    place, times = logs.place_in_unit, np.zeros((2, len(np.bincount(logs.unit))), logs.time.dtype)
    for number in (0, 1):
        mine = place == number
        times[number, logs.unit[mine]] = logs.time[mine]
    several = np.bincount(logs.unit) > 1
    ties = int((several & (times[0] == times[1])).sum())
    require(
        ties <= MOST_TIES * times.shape[1],
        rule,
        found=f"two first rows of one time in {ties:,} of {times.shape[1]:,} units",
        cure=cure,
    )


def promised_rows(logs: LoggedData, units: UnitRows | None) -> LoggedData:
    """The rows that promises are about: all of them, or the first row of each unit."""
    return logs.first_rows if units == "first row" else logs


def words_on_units(units: UnitRows | None) -> tuple[str, ...]:
    """What a certificate must say where units have several rows."""
    if units == "first row":
        return (
            "the promise is about the first row of each unit in a round, by its time, and says "
            "nothing about later ones",
        )
    if units == "all rows":
        return (
            "the number of rows of a unit does not depend on what it was shown: declared, and "
            "tested on learn and select rows whenever a candidate is trained",
        )
    return ()


def require_identity(logs: LoggedData, kind: IdentityKind) -> None:
    """Refuse rows that lack what names them."""
    columns = {"unit": logs.unit, "decision": logs.decision, "time": logs.time}
    if kind != "row" and columns[kind] is None:
        raise DataError(
            f"these rows were registered by their {kind}",
            column=kind,
            found=f"no {kind} in the logs",
            cure=f"read the logs with the column of the {kind}, as they were registered",
        )


def _rounds(logs: LoggedData | LogStream) -> list[int]:
    """The distinct rounds, in order."""
    if isinstance(logs, LogStream):
        return list(logs.facts.rounds)
    return [0] if logs.round is None else sorted({int(number) for number in logs.round.tolist()})
