"""Rows in the ledger: which are known, which verdicts count together, who shares, what is erased.

Each function is a rule of a transaction; `Ledger` and `depsue.ledger.reads` call them. What makes
rows known, and what a registration is, stands in `depsue.certificates.registration`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from depsue import codec
from depsue.certificates import registration as registry
from depsue.certificates.folds import Registration
from depsue.certificates.registration import KnownLog, placed
from depsue.data.identity import IdentityKind, LogSketch, Overlap
from depsue.errors import ConfigError, is_real, require, short
from depsue.ledger import schema
from depsue.ledger.records import (
    ErasedPart,
    ErasureRecord,
    checked_count,
    checked_hash,
    checked_json,
    checked_name,
    checked_text,
)
from depsue.ledger.transaction import Row, Transaction
from depsue.plural import counted

ROUNDING = 1e-9
Summary = Mapping[str, Any] | Callable[[Registration], Mapping[str, Any]]


def register(
    transaction: Transaction,
    campaign: str,
    round: int,
    data_hash: str,
    sketch: LogSketch,
    fractions: tuple[float, float, float],
    *,
    fresh: bool,
) -> Registration:
    """Register the rows of an observation, or refuse them.

    Args:
        transaction: in which they are observed.
        campaign, round: whose rows.
        data_hash: of all rows.
        sketch: what the rows are known by.
        fractions: shares of learn, select and certify.
        fresh: declared: no row was registered before, where only contents could tell.
    """
    declared = transaction.campaign(campaign, round, first=0)
    rows = transaction.all(schema.registrations)
    own = [row for row in rows if row.campaign == campaign]
    before = [_registration(row) for row in own if row.round == round]
    fresh = fresh or any(registration.declared_fresh for registration in before)
    same = (campaign, round)
    registration = placed(
        sketch,
        fractions,
        [_known(transaction, row, same, may_return=fresh or round > 0) for row in rows],
        ledger=transaction.ledger,
        family=f"{transaction.ledger[:8]}-{len(rows) + 1}",
        retries=bool(declared.retries),
        fresh=fresh,
        first=_registration(own[0]) if own and round > 0 else None,
        ahead=_drawn_ahead(transaction, campaign, round),
        extends=before[-1] if before else None,
    )
    again = [row.round for row in own if row.round < round and row.family == registration.family]
    require(
        not again,
        "the rows of a round were drawn in it",
        found=f"rows of round {again[0] if again else ''} of campaign {campaign!r} given as round "
        f"{round}",
        cure="give what was logged since the last deployment",
    )
    values = {
        "campaign": campaign,
        "round": round,
        "data_hash": data_hash,
        "rows": sketch.rows,
        "family": registration.family,
        "registration": checked_json(codec.plain(registration), "a registration"),
        "sketch": checked_json(sketch.to_json(), "a sketch"),
    }
    transaction.add(schema.registrations, "registration", registration.family, values)
    return registration


def secret_of_round(transaction: Transaction, campaign: str, round: int) -> str:
    """The secret of a round's decisions: drawn when it is first deployed, the same from then on.

    It must be there before a decision is: what may be looked at while the round runs are its learn
    and select rows alone, so a row's fold is known as soon as the row has its id.
    """
    return _drawn_ahead(transaction, campaign, round) or registry.draw_secret()


def _drawn_ahead(transaction: Transaction, campaign: str, round: int) -> str | None:
    rows = transaction.all(schema.deployments, campaign=campaign, round=round) if round else []
    return next((str(row.secret) for row in rows if row.secret), None)


def registered_ahead(
    transaction: Transaction,
    campaign: str,
    round: int,
    kind: IdentityKind,
    fractions: tuple[float, float, float],
) -> Registration | None:
    """What the rows of a deployed round will be registered with; None if it is not known yet."""
    secret: str | None = None
    if kind == "decision":
        secret = _drawn_ahead(transaction, campaign, round)
    elif kind == "unit":  # users come back: their later rows fall like the first ones
        first = transaction.first(schema.registrations, campaign=campaign)
        known = None if first is None else _registration(first)
        secret = known.secret if known is not None and known.kind == "unit" else None
    return (
        None
        if secret is None
        else Registration(transaction.ledger, secret, kind, fractions, family="")
    )


def require_registrable(
    transaction: Transaction,
    sketch: LogSketch,
    fractions: tuple[float, float, float],
    *,
    retries: bool,
    fresh: bool,
) -> None:
    """Refuse rows that a new campaign could not register; arguments as for `register`."""
    rows = transaction.all(schema.registrations)
    known = [_known(transaction, row, None, may_return=fresh) for row in rows]
    placed(sketch, fractions, known, ledger="", family="", retries=retries, fresh=fresh)


def registered(transaction: Transaction, campaign: str, round: int) -> Registration:
    """The newest registration of a round's rows."""
    rows = transaction.all(schema.registrations, campaign=campaign, round=round)
    if rows:
        return _registration(rows[-1])
    raise ConfigError(
        "a campaign is certified by the rules that it was begun under, and older rules are no "
        "longer enough: their folds hung on the campaign's name",
        found=f"round {round} of campaign {campaign!r}, whose rows were never registered",
        cure="it can be read and rolled back; begin a new campaign on rows that were logged since",
    )


def known_as(transaction: Transaction, sketch: LogSketch) -> Registration | None:
    """What these rows were registered with, if they are known and keep their folds."""
    for row in transaction.all(schema.registrations):
        registration = _registration(row)
        overlap = sketch.overlap(_sketch(row))
        if overlap and overlap.same.get(registration.kind, False):
            return registration
    return None


def known_in(transaction: Transaction, sketch: LogSketch) -> tuple[str, int] | None:
    """The campaign and round that registered rows of these first, whatever names them here."""
    for row in transaction.all(schema.registrations):
        if sketch.overlap(_sketch(row)):
            return row.campaign, row.round
    return None


def overlap(transaction: Transaction, campaign: str, round: int, sketch: LogSketch) -> Overlap:
    """What other rows have in common with those that a round observed."""
    rows = transaction.all(schema.registrations, campaign=campaign, round=round)
    return sketch.overlap(_sketch(rows[-1])) if rows else Overlap(0.0, "", {})


def require_extensible(transaction: Transaction, campaign: str, round: int) -> None:
    """Refuse more rows for a round that something was learned from, or that has none yet."""
    transaction.campaign(campaign, round, first=0)
    seen = transaction.observation(campaign, round)
    if seen is None:
        raise ConfigError(
            "rows can be added only to a round that was observed",
            found=f"round {round} of campaign {campaign!r} has none yet",
            cure="observe it first",
        )
    trained = transaction.first(schema.policies, campaign=campaign, round=round + 1)
    require(
        trained is None,
        "rows can be added to a round until a candidate is trained on them",
        found=f"round {round} of campaign {campaign!r}: a candidate of round {round + 1} exists",
        cure="they can be observed with the next round",
    )


def earlier_attempts(
    transaction: Transaction, declared: Row, family: str, data_hash: str, candidate: Row
) -> int:
    """How many attempts count before this campaign's next one; refuse if none may follow.

    Args:
        transaction: in which the attempt begins.
        declared: the campaign.
        family, data_hash: of the rows.
        candidate: the record of what is tested.
    """
    _require_joint_floor(transaction, declared.name)
    others = _of_family(transaction, declared.name)
    every = _attempts(transaction, family, data_hash)
    _require_blind(transaction, candidate, [row for row in every if row.campaign in others])
    attempts = [row for row in every if row.campaign not in others]
    encodings = max(
        (
            _registration(row).encodings
            for row in transaction.all(schema.registrations, family=family)
        ),
        default=0,
    )
    if not attempts and not encodings:
        return 0
    names = {row.campaign for row in attempts}
    spent = sorted(
        row.name
        for row in transaction.all(schema.campaigns)
        if row.name in names and not row.retries
    )
    if declared.retries and not spent:
        return len(attempts) + encodings
    last = attempts[-1]
    without = declared.name if not declared.retries else spent[0]
    raise ConfigError(
        "the certifying rows of a data set are read by one verdict, in whatever campaign",
        found=f"attempt {len(attempts) + encodings + 1} on rows of family {family}: {last.by} read "
        f"them at {last.at} in round {last.round} of campaign {last.campaign!r}, and campaign "
        f"{without!r} was created without retries",
        cure="certify on rows that no verdict has read; retries are declared when a campaign is "
        "created, and campaigns that share rows are declared together before the first verdict: "
        f"depsue campaign family NAME --share {last.campaign}=0.5 --share {declared.name}=0.5",
    )


def attempts_before(transaction: Transaction, campaign: str, data_hash: str) -> int:
    """How many attempts on rows of these rows' family came before the campaign's next."""
    data_hash = transaction.registered_hash(data_hash)
    rows = [
        row
        for row in transaction.all(schema.registrations, data_hash=data_hash)
        if campaign in ("", row.campaign)
    ]
    if not rows:
        return len(transaction.all(schema.reads, family=data_hash))  # counted by older rules
    others = _of_family(transaction, campaign)
    family = rows[-1].family
    members = transaction.all(schema.registrations, family=family)
    encodings = max(_registration(row).encodings for row in members)
    reads = _attempts(transaction, family, data_hash)
    return encodings + sum(row.campaign not in others for row in reads)


def _attempts(transaction: Transaction, family: str, data_hash: str) -> list[Row]:
    """Attempts on rows of a family: those that pooled some of them, too.

    Those by older rules are known by the hash of the data. What an attempt without a certificate
    pooled is written nowhere: it counts where its campaign had rows of the family before.
    """
    earliest: dict[str, int] = {}
    for row in transaction.all(schema.registrations, family=family):
        earliest[row.campaign] = min(earliest.get(row.campaign, row.round), row.round)
    return [
        row
        for row in transaction.all(schema.reads)
        if row.family in (family, data_hash)
        or (row.certificate and family in _pooled_families(row.certificate))
        or (row.certificate is None and earliest.get(row.campaign, row.round) < row.round - 1)
    ]


def _pooled_families(certificate: str) -> set[str]:
    """The families of the rows that a verdict pooled from earlier rounds."""
    strata = json.loads(certificate).get("strata") or ()
    return {stratum["registration"]["family"] for stratum in strata}


def _require_blind(transaction: Transaction, candidate: Row, read: Sequence[Row]) -> None:
    """Refuse a candidate that was, or could be, chosen after a verdict of its family on the rows.

    A certificate prints means of the rows that it read. Whoever has seen them can choose a
    candidate that these very rows like: among those to come, or among several that were there. So
    it must be the newest of its round before the first of these verdicts.
    """
    seen = next((row for row in read if row.id < candidate.id), None)
    if seen is not None:
        raise ConfigError(
            "campaigns of a family train on the rows that they share before the first of their "
            "verdicts reads them",
            found=f"a candidate of {candidate.at}, and {seen.by} read the rows at {seen.at} in "
            f"round {seen.round} of campaign {seen.campaign!r}",
            cure="certify a candidate that was trained before; or certify on rows that no verdict "
            "has read. Train all campaigns of a family first, then certify",
        )
    if not read:
        return
    rivals = transaction.all(schema.policies, campaign=candidate.campaign, round=candidate.round)
    first = min(read, key=lambda row: int(row.id))
    newest = max((row for row in rivals if row.id < first.id), key=lambda row: int(row.id))
    require(
        newest.id == candidate.id,
        "where campaigns of a family share rows, what is tested after their first verdict was "
        "chosen before it: the newest candidate of then",
        found=f"candidate {candidate.policy_hash[:12]}; the newest of then is "
        f"{newest.policy_hash[:12]}, and {first.by} read the rows at {first.at}",
        cure="certify the newest one; or certify on rows that no verdict has read",
    )


def read_elsewhere(transaction: Transaction, campaign: str, since: int) -> tuple[str, ...]:
    """Other campaigns with a verdict on rows of this one's rounds, or on rows of their families.

    Args:
        transaction: reads.
        campaign: whose rounds.
        since: the first of them.
    """
    own = transaction.all(schema.registrations, campaign=campaign)
    families = {row.family for row in own if row.round >= since}
    rows = [row for family in families for row in _attempts(transaction, family, family)]
    return tuple(dict.fromkeys(row.campaign for row in rows if row.campaign != campaign))


def checked_family(name: str, shares: Mapping[str, float], floor: float | None) -> dict[str, Any]:
    """The terms of a family, checked."""
    checked_name(name, "a family")
    ok = all(is_real(share) and 0 < share <= 1 for share in shares.values())
    total = sum(shares.values()) if ok else 0.0
    require(
        ok and len(shares) >= 2 and total <= 1 + ROUNDING,
        "a family has two campaigns or more, whose shares of delta are positive and sum to at "
        "most 1",
        found=short(dict(shares)),
        cure="for example --share spring=0.5 --share shoes=0.5",
    )
    require(
        floor is None or (is_real(floor) and 0 < floor <= 1),
        "the joint floor is a share of pi0's value, in (0, 1]",
        found=short(floor),
        cure="0.9 asks that all campaigns together keep 90% of pi0's value",
    )
    return {"shares": {k: float(v) for k, v in shares.items()}, "floor": floor}


def require_undecided(transaction: Transaction, name: str, shares: Mapping[str, float]) -> None:
    """Refuse to declare what a verdict was reached without."""
    if transaction.first(schema.families, name=name) is not None:
        return
    for row in transaction.all(schema.families):
        both = sorted(set(json.loads(row.terms)["shares"]) & set(shares))
        require(
            not both,
            "a campaign is in one family",
            found=f"{', '.join(both)} in {row.name!r} already",
            cure="declare one family with all campaigns that share rows or traffic",
        )
    known = {row.name for row in transaction.all(schema.campaigns)}
    missing = sorted(set(shares) - known)
    require(
        not missing,
        "a family is of campaigns that exist",
        found=f"no campaign {', '.join(map(repr, missing))}",
        cure="create the campaigns first, then declare the family, then certify",
    )
    read = [row for row in transaction.all(schema.reads) if row.campaign in shares]
    require(
        not read,
        "a family is declared before the first verdict of any of its campaigns",
        found=f"{read[0].by} read rows for {read[0].campaign!r} at {read[0].at}" if read else "",
        cure="certify the others on rows that no verdict has read",
    )


def sharing(transaction: Transaction, campaign: str, round: int) -> tuple[tuple[str, ...], bool]:
    """Campaigns, in no declared family with this one, that have rows of its round's family.

    Also whether a verdict of one of them has read such rows.
    """
    family = registered(transaction, campaign, round).family
    declared = {campaign, *_of_family(transaction, campaign)}
    rows = transaction.all(schema.registrations, family=family)
    others = dict.fromkeys(row.campaign for row in rows if row.campaign not in declared)
    read = any(row.campaign in others for row in transaction.all(schema.reads, family=family))
    return tuple(others), read


def share_of_delta(transaction: Transaction, campaign: str) -> float:
    """The campaign's share of delta: 1 unless it is in a declared family."""
    for row in transaction.all(schema.families):
        shares = json.loads(row.terms)["shares"]
        if campaign in shares:
            return float(shares[campaign])
    return 1.0


def _of_family(transaction: Transaction, campaign: str) -> set[str]:
    """The other campaigns that were declared to share rows with this one."""
    for row in transaction.all(schema.families):
        shares = json.loads(row.terms)["shares"]
        if campaign in shares:
            return set(shares) - {campaign}
    return set()


def _require_joint_floor(transaction: Transaction, campaign: str) -> None:
    """Refuse a verdict whose floors, taken together, allow more loss than the family declared."""
    for row in transaction.all(schema.families):
        terms = json.loads(row.terms)
        if campaign not in terms["shares"] or terms["floor"] is None:
            continue
        losses = {
            member.name: _largest_loss(member)
            for member in transaction.all(schema.campaigns)
            if member.name in terms["shares"]
        }
        total = sum(losses.values())
        require(
            total <= 1 - terms["floor"] + ROUNDING,
            f"the campaigns of family {row.name!r} together keep {terms['floor']:g} of pi0's "
            "value: what their floors allow to be lost adds up",
            found=", ".join(f"{name} may lose {loss:g}" for name, loss in losses.items()),
            cure="create them with higher floors, or declare the family with a lower one",
        )


def _largest_loss(campaign: Row) -> float:
    """The largest share of pi0's value that a campaign's floors allow to be lost.

    Only floors of the reward itself, over everybody, limit it: a floor of a segment, or of another
    reward, allows the rest to be lost. With `safety="cumulative"` it is the share of the sum over
    all deployments. A floor above pi0's value makes up for nothing, for the
    campaign may end with pi0.
    """
    settings = json.loads(campaign.settings)
    explore = settings.get("campaign", {}).get("explore", {})
    ratios = [
        promise.get("floor", {}).get("ratio")
        for promise in explore.get("promises", ())
        if promise.get("reward") is None and promise.get("segment") is None
    ]
    relative = [float(ratio) for ratio in ratios if ratio is not None]
    return max(1 - max(relative), 0.0) if relative else 1.0


def _known(
    transaction: Transaction, row: Row, same: tuple[str, int] | None, *, may_return: bool
) -> KnownLog:
    """A log that the ledger knows; more rows of the `same` round contain it, whatever returns."""
    campaign = transaction.first(schema.campaigns, name=row.campaign)
    return KnownLog(
        _registration(row),
        _sketch(row),
        f"round {row.round} of campaign {row.campaign!r}",
        retries=campaign is not None and bool(campaign.retries),
        may_return=may_return and (row.campaign, row.round) != same,
    )


def _registration(row: Row) -> Registration:
    return codec.typed(json.loads(row.registration), Registration, what="a registration")


def _sketch(row: Row) -> LogSketch:
    return LogSketch.from_json(json.loads(row.sketch))


def observed(campaign: str, round: int, data_hash: str, rows: int, source: str) -> dict[str, Any]:
    """What is written of an observation, checked; its summary follows."""
    return {
        "campaign": campaign,
        "round": round,
        "data_hash": checked_hash(data_hash, "the data's hash"),
        "rows": checked_count(rows, "rows", 1),
        "source": checked_name(source, "the source"),
        "summary": "{}",
    }


def summed_up(summary: Summary, registration: Registration) -> str:
    """The summary of an observation, as it is written."""
    values = summary(registration) if callable(summary) else summary
    return checked_json(values, "the summary")


def require_observable(transaction: Transaction, campaign: str, round: int, data_hash: str) -> None:
    """Refuse rows that were observed before, and rounds in which nothing was deployed."""
    same = transaction.first(schema.observations, campaign=campaign, data_hash=data_hash)
    if same is not None:
        raise ConfigError(
            "each round logs rows of its own",
            found=f"the same data {data_hash[:12]} is round {same.round}, by {same.by}",
            cure=f"observe what round {round} logged",
        )
    if round > 0:
        transaction.require_current(campaign, round)
        require(
            transaction.first(schema.deployments, campaign=campaign, round=round) is not None,
            "a round is observed after something was deployed in it",
            found=f"no deployment in round {round} of campaign {campaign!r}",
            cure="record the deployment first; if pi0 went on serving, as a rollback to it",
        )


def begin_erasure(
    transaction: Transaction, campaign: str, unit: str, parts: Sequence[ErasedPart]
) -> ErasureRecord:
    """Record an erasure before it is done; arguments as for `Ledger.begin_erasure`."""
    checked_hash(unit, "the keyed hash of the unit")
    text = checked_text(codec.encode(tuple(parts)), "an erasure")
    transaction.campaign(campaign, 0, first=0)
    under_way = [
        row
        for row in transaction.all(schema.erasures, campaign=campaign, unit=unit)
        if row.finished_at is None
    ]
    if under_way and not parts:
        return schema.record(ErasureRecord, under_way[-1])
    observed = transaction.observations(campaign)
    for part in parts:
        seen = observed.get(part.round)
        require(
            seen is not None and seen.data_hash == part.data,
            "an erasure is of the rows as they were observed",
            found=f"round {part.round} has other rows by now",
            cure="run the same command again",
        )
    for row in transaction.all(schema.reads, campaign=campaign):
        require(
            row.passed is not None or row.round - 1 not in {part.round for part in parts},
            "rows are not erased under a verdict that reads them",
            found=f"{row.by} began attempt {row.attempt} of round {row.round} at {row.at}, "
            "and it has no verdict yet",
            cure=f"finish it first: depsue campaign certify {campaign}",
        )
    words = [f"{counted(part.erased, 'row')} of round {part.round}" for part in parts]
    values = {"campaign": campaign, "unit": unit, "parts": text}
    detail = ", ".join(words) or "no row of a round"
    id = transaction.add(schema.erasures, "erasure", detail, values)
    return schema.record(ErasureRecord, transaction.all(schema.erasures, id=id)[0])


def finish_erasure(
    transaction: Transaction, campaign: str, unit: str, counts: Mapping[str, int]
) -> None:
    """Record that every erasure of a unit which is under way is done."""
    text = checked_json(counts, "what was erased")
    words = ", ".join(f"{name} {n:,}" for name, n in counts.items() if n)
    for row in transaction.all(schema.erasures, campaign=campaign, unit=unit):
        if row.finished_at is None:
            values = {"campaign": campaign, "erasure_id": row.id, "counts": text}
            transaction.add(schema.completions, "erased", words or "nothing", values)
