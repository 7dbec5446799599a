"""How a campaign begins, and how one is taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from depsue import codec
from depsue.assumptions import Rung, checked_rungs, columns_of
from depsue.campaigns.campaign import Campaign
from depsue.campaigns.files import CampaignFiles
from depsue.campaigns.observing import FEWEST_VALUES, summarised
from depsue.campaigns.secret import secret_of
from depsue.campaigns.settings import CampaignSettings, CampaignTerms
from depsue.certificates import declared_units
from depsue.check import check_logs, guess_mapping, read_or_guess
from depsue.data.items import read_items
from depsue.data.logs import LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import mapped, open_source, read_mapped, words_on_younger
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.diagnostics.unit_rows import require_testable
from depsue.errors import require, require_path, require_settings
from depsue.exploration.rounds import require_countable
from depsue.exploration.settings import ExploreSettings
from depsue.ledger import Ledger, open_ledger
from depsue.plural import counted
from depsue.policies import BasePolicy, NamedPolicy, named_policy, save
from depsue.savable import outside_of, required_hash

LEDGER = "ledger.db"


def open_home(home: str | Path, ledger: str | None = None, *, create: bool = False) -> Ledger:
    """The ledger of a folder of campaigns: `ledger.db` in it, or one at another address.

    Args:
        home: the folder.
        ledger: another address, such as postgresql://...
        create: whether to make it where there is none.
    """
    require_path(home, "the folder of all campaigns")
    if ledger is not None:
        return open_ledger(ledger, create=create)
    if create:
        Path(home).mkdir(parents=True, exist_ok=True)
    return open_ledger(Path(home) / LEDGER, create=create)


def create(
    name: str,
    logs: str | Path | Any,
    items: str | Path | Any,
    *,
    pi0: BasePolicy | str | Path,
    mapping: LogMapping | str | Path | None = None,
    settings: CampaignSettings | None = None,
    novel: Sequence[str] | None = None,
    id: str | None = None,
    fresh: bool = False,
    window: float | None = None,
    now: datetime | None = None,
    by: str,
    home: str | Path = "campaigns",
    ledger: Ledger | None = None,
) -> Campaign:
    """Begin a campaign with the logs of pi0; again with the same arguments, it is found.

    Args:
        name: of the campaign.
        logs: what pi0 logged: a file, a folder or a pattern; or a frame of any library, which is
            kept in a file of the campaign.
        items: a file, or a frame, with one row per item.
        pi0: the logging policy, or what names one: see `depsue.policies.named`.
        mapping: which column of the logs is what, or the TOML file that says so; None guesses.
        settings: what is fixed.
        novel: ids of the novel items; None takes the column `novel`, else what was never logged.
        id: the column of the items' ids.
        fresh: declare that no row was registered before, where rows without times look like rows
            of another campaign; the certificate says so.
        window: seconds after a decision until its reward is complete; None is the mapping's.
        now: the time; rows younger than the window are left out. None is the present.
        by: who begins it.
        home: the folder of all campaigns.
        ledger: where it is remembered; None is `ledger.db` in `home`.
    """
    settings = CampaignSettings() if settings is None else settings
    require_settings(settings, CampaignSettings)
    require_path(home, "the folder of all campaigns")
    files, assume = CampaignFiles(home, name), settings.explore.assume
    logs = files.kept(0, logs)
    first = _taken_in(logs, items, pi0, mapping, novel, id, _Window(window, now, files), assume)
    explore = replace(settings.explore, assume=first.assume)
    settings = replace(settings, explore=explore)
    rows, policy, catalogue = first.rows, first.policy, first.rows.catalogue
    require_countable(explore, rows)
    if declared_units(rows, explore.units) == "all rows":
        require_testable(policy)
    require_drawn_by(policy, rows)
    hash = required_hash(policy)
    terms = CampaignTerms(settings, pi0=hash, catalogue=catalogue.hash)
    recorded = codec.plain(terms)
    ledger = open_home(home, create=True) if ledger is None else ledger
    begun = next((record for record in ledger.campaigns() if record.name == name), None)
    if begun is None:
        ledger.require_registrable(
            rows.sketch, settings.explore.fractions, retries=settings.retries, fresh=fresh
        )
        save(policy, files.pi0, catalogue=catalogue)
        files.settle(0, files.stage(0, catalogue, first.mapping))
    else:
        CampaignTerms.of(begun).require_same(terms, name)
        recorded = dict(begun.settings)  # perhaps in the layout of an earlier version
    ledger.create_campaign(
        name,
        rounds=settings.explore.deployments,
        settings=recorded,
        retries=settings.retries,
        by=by,
    )
    ledger.observe(
        name,
        0,
        data_hash=rows.hash,
        rows=len(rows),
        source=str(Path(logs).absolute()),
        summary=lambda registration: codec.plain(
            summarised(rows, explore.promises, policy, hash, explore.units, registration)
        ),
        by=by,
        sketch=rows.sketch,
        fractions=settings.explore.fractions,
        fresh=fresh,
        files=files.hashes(0),
    )
    notes = (*first.notes, *_values_left(rows, settings.explore), *_shared_rows(ledger, name))
    if begun is None:
        notes = (*notes, PLANNED_BEFORE)
    campaign = Campaign(ledger, home, name, by=by, notes=notes, outside=outside_of(policy))
    secret_of(campaign)  # made now
    return campaign


PLANNED_BEFORE = (
    "a depsue plan that was made on these rows before now has read some that may certify: terms "
    "that were chosen by it rest on them, and no certificate can tell. A plan with this --home "
    "reads none from now on"
)


def _values_left(rows: LoggedData, explore: ExploreSettings) -> list[str]:
    """A word on how many values there are, where only the first row of each unit counts."""
    if explore.units != "first row" or rows.units is None or not rows.repeats_units:
        return []
    left = len(rows.units)
    learn, select, certify = (int(left * share) for share in explore.fractions)
    each = certify // explore.deployments
    fewest = FEWEST_VALUES["certify"]
    few = f"; that is few: {fewest} are needed" * (each < fewest)
    return [
        f"first row: {left:,} of {len(rows):,} rows count, one for each unit; about {learn:,} to "
        f"learn from, {select:,} to select by, and {each:,} for each of "
        f"{counted(explore.deployments, 'verdict')}{few}"
    ]


def _shared_rows(ledger: Ledger, name: str) -> list[str]:
    """A word where another campaign has the same rows."""
    if CampaignTerms.of(ledger.campaign(name)).campaign.retries or not ledger.registered(name, 0):
        return []
    others, read = ledger.sharing(name, 0)
    if not others:
        return []
    names = ", ".join(others)
    if read:
        names = ", ".join(ledger.read_elsewhere(name))
        return [
            f"warning: a verdict of {names} has read these rows: this campaign cannot be certified "
            "on them; give rows that were logged since"
        ]
    shares = " ".join(f"--share {each}={1 / (len(others) + 1):.3g}" for each in (*others, name))
    return [
        f"warning: {names} has the same rows, and one verdict may read them. To certify both, "
        f"declare it before the first verdict: depsue campaign family NAME {shares}"
    ]


@dataclass(frozen=True, eq=False)
class _Window:
    """Which rows are old enough: the declared window, the time, and what was recorded before."""

    declared: float | None
    now: datetime | None
    files: CampaignFiles

    def of(self, mapping: LogMapping) -> LogMapping:
        """The mapping with the window, and the time after which no row is read."""
        if self.declared is not None:
            mapping = replace(mapping, window=self.declared)
        mapping = mapping.taken_in(self.now)
        if mapping.window is None or not self.files.has_mapping(0):
            return mapping
        before = self.files.mapping(0)  # created before: the rows of then
        return replace(mapping, until=before.until if before.until else mapping.until)


@dataclass(frozen=True, eq=False)
class _FirstLogs:
    """What a campaign begins with: the rows of pi0, how they were read, pi0, what is assumed."""

    rows: LoggedData
    mapping: LogMapping
    policy: BasePolicy
    notes: tuple[str, ...]
    assume: tuple[Rung, ...]


def _taken_in(
    logs: str | Path,
    items: str | Path | Any,
    pi0: BasePolicy | str | Path,
    mapping: LogMapping | str | Path | None,
    novel: Sequence[str] | None,
    id: str | None,
    window: _Window,
    assume: tuple[Rung, ...],
) -> _FirstLogs:
    """Check and read what pi0 logged; arguments as for `create`."""
    source = open_source(logs)
    guessed: Sequence[str] = ()
    if mapping is None:
        mapping, guessed = guess_mapping(source)
    elif not isinstance(mapping, LogMapping):
        mapping, guessed = read_or_guess(source, mapping)
    mapping = window.of(mapping)
    report = check_logs(source, items, mapping, id=id)
    errors = [finding for finding in report.findings if finding.severity == "error"]
    require(
        report.usable,
        errors[0].rule if errors else "logs must be usable",
        found=errors[0].value if errors else "not usable",
        cure=(errors[0].cure if errors else "") or f"depsue check {logs} ITEMS says more",
    )
    mapping = report.mapping
    shown = source.collect(mapped(source, mapping).select("action").unique())["action"]
    assume = assume or checked_rungs(mapping.assume)
    labels = columns_of(assume)
    listed = read_items(items, id=id, novel=novel, logged=shown, labels=labels)
    catalogue = listed.catalogue
    require(
        bool(catalogue.novel.any()),
        "there must be a novel item to explore",
        found=f"none among {len(catalogue):,}",
        cure="mark the new items in the items file: a column novel",
    )
    rows = read_mapped(source, mapping, catalogue, 0)
    if isinstance(pi0, BasePolicy):
        named = NamedPolicy(pi0)
    else:
        named = named_policy(pi0, catalogue, logs=rows, contexts=mapping)
    warnings = [f"warning: {seen.rule}: {seen.value}; {seen.cure}" for seen in report.findings]
    young = words_on_younger(source, mapping)
    notes = dict.fromkeys((*guessed, *young, *report.notes, *listed.notes, *named.notes, *warnings))
    return _FirstLogs(rows, mapping, named.policy, tuple(notes), assume)
