"""Erasing a unit: a user's rows go from the store, the journal, the logs and the exports.

The order makes it safe to be cut short. `erase_unit` first records in the ledger what each round
will be without the rows (`Ledger.begin_erasure`): from then on the rounds are read that way, in
whatever state their files are. Then it takes the rows out of the store, the journal and the files,
and last it records that this is done. The same call again finishes what was cut short; where
nothing is left to do it changes nothing.

What stays: tombstones of decisions (`depsue.serving.store`), which say that a decision was served
and nothing of to whom; counts in the ledger; policies and certificates, which hold no row. Files
that a team gave to `create` or `observe` are the team's: they are named, and read without the rows.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from depsue import codec
from depsue.campaigns import Campaign
from depsue.campaigns.files import file_hash
from depsue.campaigns.observing import summarised
from depsue.campaigns.records import RoundSummary
from depsue.campaigns.secret import secret_of
from depsue.certificates import Certificate, three_folds
from depsue.data.logs import ErasedRows, LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import Source, mapped, open_source, read_mapped
from depsue.data.tables import exact
from depsue.errors import FileError, require, short
from depsue.files import write_file
from depsue.ledger import ErasedPart
from depsue.plural import counted
from depsue.serving.exporting import exported_files
from depsue.serving.journal import Journal
from depsue.serving.settings import store_address
from depsue.serving.store import Store
from depsue.serving.tombstones import ErasedCounts, unit_texts

if TYPE_CHECKING:
    import polars as pl

FLAG = "depsue: of the unit"
"""A column that marks the unit's rows while a file is looked at."""
_PARTIAL = re.compile(r"\..+\.parquet\.[0-9a-f]{32}")
"""Files of a write that was killed."""


@dataclass(frozen=True)
class HeldFile:
    """A file that holds rows of the unit.

    Args:
        path: where.
        rows: how many.
        sha256: of the file as it is.
        round: whose logs it has; None for an export.
    """

    path: Path
    rows: int
    sha256: str
    round: int | None = None

    def __str__(self) -> str:
        whose = "" if self.round is None else f" of round {self.round}"
        rows = counted(self.rows, "row")
        return f"{rows}{whose} in {self.path} (SHA-256 {self.sha256[:16]})"


@dataclass(frozen=True)
class Erasure:
    """What an erasure takes out, or has taken out.

    Args:
        campaign: whose.
        decisions, rewards: in the store.
        journalled: decisions and rewards that wait in the journal.
        rounds: rows that go from each observed round, by its number.
        files: files of ours that are rewritten.
        outside: files of the team's that hold rows of the unit; only the team can delete them.
        begun: when an earlier erasure of this unit was begun that is not finished; "" if none was.
        before: when rows of this unit were erased before; "" if they never were.
        notes: what else to know, in words.
    """

    campaign: str
    decisions: int = 0
    rewards: int = 0
    journalled: int = 0
    rounds: dict[int, int] | None = None
    files: tuple[HeldFile, ...] = ()
    outside: tuple[HeldFile, ...] = ()
    begun: str = ""
    before: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take out."""
        found = self.decisions or self.journalled or self.rounds or self.files
        return not found and not self.begun

    @property
    def counts(self) -> dict[str, int]:
        """How much, by the kind of thing: what the ledger records."""
        return {
            "decisions": self.decisions,
            "rewards": self.rewards,
            "journalled": self.journalled,
            "rows": sum((self.rounds or {}).values()),
            "files": len(self.files),
            "files outside": len(self.outside),
        }

    def lines(self) -> list[str]:
        """In words, a line for each thing to know."""
        lines = []
        if self.decisions or self.rewards:
            lines.append(
                f"store: {counted(self.decisions, 'decision')} and "
                f"{counted(self.rewards, 'reward')}"
            )
        if self.journalled:
            lines.append(f"journal: {counted(self.journalled, 'decision or reward', 'lines')}")
        for k, rows in (self.rounds or {}).items():
            lines.append(f"round {k}: {counted(rows, 'row')}")
        lines += [f"file: {file}" for file in self.files]
        lines += [f"not ours to change: {file}; delete these rows there" for file in self.outside]
        if self.begun:
            lines.append(f"an erasure of this unit, begun {self.begun}, was not finished")
        if not lines:
            lines.append("no row of this unit")
        if self.before:
            lines.append(f"rows of this unit were erased before, {self.before}")
        return [*lines, *self.notes]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def preview_erasure(campaign: Campaign, unit: int | str, *, store: str | None = None) -> Erasure:
    """What `erase_unit` would take out; nothing is changed.

    Args:
        campaign: whose.
        unit: the id of the unit; the number 7 and the text "7" are the same unit.
        store: the address of the decisions; None is the file in the campaign's folder.
    """
    return _Search(campaign, unit, store).erasure


def erase_unit(campaign: Campaign, unit: int | str, *, store: str | None = None) -> Erasure:
    """Take all rows of a unit out of a campaign; what was taken out.

    A service that writes to a SQLite file must be stopped for it. On PostgreSQL services go on.

    Args:
        campaign, unit, store: as for `preview_erasure`.
    """
    search = _Search(campaign, unit, store)
    with search.store.hold() as held:
        require(
            held or search.store_is_absent,
            "nobody else writes to a file of decisions while a unit is erased",
            found=f"a service of {campaign.name!r} writes to {search.store.name}",
            cure="stop the service, erase, start it again; on PostgreSQL it may go on",
        )
        erasure = search.erasure
        if erasure.is_empty:
            return erasure
        name, hashed, by = campaign.name, search.hashed, campaign.by
        campaign.ledger.begin_erasure(name, unit=hashed, parts=search.parts, by=by)
        erased = search.take_out()
        campaign.ledger.finish_erasure(name, unit=hashed, counts=erased.counts, by=by)
        return erased


class _Search:
    """Where a unit's rows are.

    Args:
        campaign, unit, store: as for `preview_erasure`.
    """

    def __init__(self, campaign: Campaign, unit: int | str, store: str | None) -> None:
        self.unit = str(unit)
        require(
            isinstance(unit, int | str) and not isinstance(unit, bool) and bool(self.unit.strip()),
            "a unit is named by its id, a whole number or a text",
            found=short(unit),
            cure="give it as the logs have it",
        )
        self.campaign, self.secret = campaign, secret_of(campaign)
        self.hashed = self.secret.hidden("unit", self.unit)
        address = store_address(campaign, store)
        self.store_is_absent = "://" not in address and not Path(address).exists()
        self.store = Store(address, campaign.name, writing=True, hidden=self.secret.hidden)
        self.journal = Journal(campaign.files.folder)
        self.waiting = self.journal.of_unit(unit_texts(self.unit))
        self.stored = ErasedCounts((), 0) if self.store_is_absent else self.store.of_unit(self.unit)
        self.ids = {*self.stored.ids, *(decision.id for decision in self.waiting.decisions)}
        if not self.store_is_absent:  # a file may still have what the store has no more
            self.ids |= self.store.tombstones_of(self.hashed)
        self.notes: list[str] = []
        self.parts: list[ErasedPart] = []
        self.files: list[HeldFile] = []
        self.outside: list[HeldFile] = []
        for k in range(campaign.round):
            self._look_at_round(k)
        for path in exported_files(campaign.files.folder):
            if path not in {file.path for file in self.files}:
                self._look_at_export(path)

    @property
    def erasure(self) -> Erasure:
        """What there is."""
        records = [
            record
            for record in self.campaign.ledger.erasures(self.campaign.name)
            if record.unit == self.hashed
        ]
        begun = [f"{record.at:%Y-%m-%d} by {record.by}" for record in records if not record.counts]
        before = [f"{record.at:%Y-%m-%d} by {record.by}" for record in records if record.counts]
        return Erasure(
            campaign=self.campaign.name,
            decisions=len(self.stored.ids),
            rewards=self.stored.rewards,
            journalled=self.waiting.size,
            rounds={part.round: part.erased for part in self.parts},
            files=tuple(self.files),
            outside=tuple(self.outside),
            begun=begun[-1] if begun else "",
            before=before[-1] if before else "",
            notes=tuple(self.notes),
        )

    def take_out(self) -> Erasure:
        """Take the rows out of store, journal and files, in this order; what was taken out."""
        texts, erasure = unit_texts(self.unit), self.erasure
        notes = list(self.notes)
        if not self.store_is_absent or self.waiting.size:
            self.store.open()
            try:
                # what waits was answered: it becomes a tombstone like all else
                self.store.replay(self.waiting.decisions, (), self.waiting.rewards)
                taken = self.store.erase(self.unit, time.time())
            finally:
                self.store.close()
            erasure = replace(erasure, decisions=len(taken.ids), rewards=taken.rewards)
            self.ids |= set(taken.ids)
        in_use = self.journal.erase(texts, self.ids)
        if in_use:
            notes.append(
                f"{counted(in_use, 'file')} of the journal in use by a running service: what it "
                "replays of this unit is erased as it comes in"
            )
        for file in self.files:
            _rewrite(file.path, self._mark(open_source(file.path), self._mapping(file.round)))
        for path in self.campaign.files.folder.rglob(".*"):
            if _PARTIAL.fullmatch(path.name):
                path.unlink(missing_ok=True)
        return replace(erasure, notes=tuple(notes))

    def _mapping(self, k: int | None) -> LogMapping:
        return self.campaign.files.mapping(0 if k is None else k)

    def _look_at_round(self, k: int) -> None:
        """Count the unit's rows in the logs of a round, and what is left without them."""
        campaign = self.campaign
        seen = campaign.ledger.observations(campaign.name)[k]
        place, mapping = campaign.source(seen), self._mapping(k)
        try:
            source = open_source(place)
        except FileError as problem:
            self.notes.append(f"round {k}: its logs are not at {place}: {problem.found}")
            return
        is_ours = self._is_ours(Path(place))
        if mapping.unit is None and not is_ours:
            self.notes.append(f"round {k}: {place} names no unit, so its rows cannot be told")
            return
        marked, catalogue = self._mark(source, mapping), campaign.files.items(k)
        whole = read_mapped(source, mapping, catalogue, k)
        rows = _marked_rows(marked, mapping, whole)
        if not rows.any():
            return
        self._note_files(source, mapping, k, is_ours)
        require(
            not rows.all(),
            "a round has rows of other units, too",
            found=f"all {len(whole):,} rows of round {k} are of this unit",
            cure="delete the campaign's folder and its logs as a whole",
        )
        gone = campaign.erased_units(k, whole) if whole.hash != seen.data_hash else []
        rest = Source.of(marked.frame.filter(~exact(FLAG)).drop(FLAG), source.name)
        left = read_mapped(rest, mapping, catalogue, k, without=gone)
        if left.hash == seen.data_hash:
            return  # the ledger counts the round without these rows already
        before = read_mapped(source, mapping, catalogue, k, without=gone) if gone else whole
        if before.hash != seen.data_hash:
            campaign.logs(k)  # says what is wrong with the files
        rows = _marked_rows(marked, mapping, before, gone)
        places = np.flatnonzero(rows).tolist()
        self.parts.append(self._part(k, replace(before, erased=seen.erased), left, places))

    def _part(
        self, k: int, before: LoggedData, left: LoggedData, places: Sequence[int]
    ) -> ErasedPart:
        """What the ledger records of a round."""
        campaign, explore = self.campaign, self.campaign.settings.explore
        seen = campaign.ledger.observations(campaign.name)[k]
        registration = campaign.ledger.registration(campaign.name, k)
        numbers = before.numbers[np.asarray(places)].tolist()
        by_number = registration.kind == "row"
        left = replace(left, erased=_with(before, numbers if by_number else []))
        certifying = 0
        if k < campaign.rounds:
            group, reserve = (k + 1, max(k + 1, explore.deployments)), self._reserve(k)
            folds = [
                three_folds(rows, registration, units=explore.units, group=group, reserve=reserve)
                for rows in (before, left)
            ]
            certifying = _values(folds[0].certify) - _values(folds[1].certify)
        old = RoundSummary.of(seen)
        drawn = replace(left, catalogue=campaign.files.items(max(k - 1, 0)))
        policy = campaign.widened(campaign.pi0, drawn.catalogue)
        if k:
            policy = campaign.drawing(k, old.served, old.holdout, drawn.catalogue)
        promises, units = explore.promises, explore.units
        new = summarised(drawn, promises, policy, old.served, units, registration)
        summary = replace(
            new,
            arrived=old.arrived,
            withdrawn=old.withdrawn,
            # those without a row are charged at their worst
            decisions=None if k == 0 else old.decisions or len(before) + seen.rows_erased,
            by_pi0=old.by_pi0,
            holdout=old.holdout,
            ended=old.ended,
        )
        return ErasedPart(
            round=k,
            data=seen.data_hash,
            data_hash=left.hash,
            rows=len(left),
            erased=len(places),
            places=tuple(numbers) if by_number else (),
            values=_values(before) - _values(left),
            certifying=certifying,
            summary=codec.plain(summary),
        )

    def _reserve(self, k: int) -> float:
        """The share of round k's certifying rows that the verdict on them left to later ones.

        A verdict to come leaves none: where rows were erased, nothing is pooled.
        """
        decided = self.campaign.decided(k + 1)
        return Certificate.from_json(decided[1].certificate or "").reserve if decided else 0.0

    def _look_at_export(self, path: Path) -> None:
        """Count the unit's rows in a file that was exported."""
        if not path.exists():
            self.notes.append(f"an export is no longer at {path}: if it was moved, look there")
            return
        try:
            self._note_files(open_source(path), self._mapping(None), None, is_ours=True)
        except FileError as problem:
            self.notes.append(f"{path} is not as it was exported: {problem.found}")

    def _note_files(
        self, source: Source, mapping: LogMapping, k: int | None, is_ours: bool
    ) -> None:
        """Note which files of a source hold rows of the unit."""
        for path in source.paths:
            marked = self._mark(open_source(path), mapping)
            rows = int(marked.collect(marked.frame.select(exact(FLAG).sum())).item() or 0)
            if rows:
                file = HeldFile(path, rows, file_hash(path), k)
                (self.files if is_ours else self.outside).append(file)

    def _mark(self, source: Source, mapping: LogMapping) -> Source:
        """The source with a column that says which rows are the unit's: by its id, or by theirs."""
        import polars as pl

        mine = pl.lit(False)
        if mapping.unit is not None and mapping.unit in source.names:
            mine = mine | (exact(mapping.unit).cast(pl.String) == self.unit)
        if "decision" in source.names:
            mine = mine | exact("decision").cast(pl.String).is_in(sorted(self.ids))
        frame = source.frame.with_columns(mine.fill_null(False).alias(FLAG))
        return replace(source, frame=frame, names=(*source.names, FLAG))

    def _is_ours(self, path: Path) -> bool:
        """Whether depsue wrote the file: an export, or what a round served."""
        folder = self.campaign.files.folder.resolve()
        inside = path.is_file() and path.resolve().is_relative_to(folder)
        ours = inside or path in exported_files(self.campaign.files.folder)
        return ours and path.suffix == ".parquet"


def _values(logs: LoggedData) -> int:
    """How many values of a mean the rows are."""
    return len(logs) if logs.units is None else len(logs.units)


def _marked_rows(
    marked: Source, mapping: LogMapping, like: LoggedData, gone: Sequence[int | str] = ()
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(n,) which of the rows, as the mapping reads them, are marked."""
    import polars as pl

    flags = marked.frame.with_columns(exact(FLAG).cast(pl.Float64).alias(mapping.reward))
    raw = replace(mapping, shift=0.0, cap=None, estimated=None)
    table = mapped(replace(marked, frame=flags), raw, gone)
    found = marked.collect(table.select("reward"))["reward"].to_numpy() > 0
    if len(found) != len(like):
        raise RuntimeError("the rows of a file are marked as they are read")
    return np.asarray(found)


def _with(before: LoggedData, numbers: Sequence[int]) -> tuple[ErasedRows, ...]:
    """What is erased of a log once these rows are, too; only their numbers matter."""
    return (*before.erased, ErasedRows("", len(numbers), tuple(numbers), 0, 0, ""))


def _rewrite(path: Path, marked: Source) -> None:
    """Write a Parquet file of ours without the marked rows."""
    table: pl.DataFrame = marked.collect(marked.frame.filter(~exact(FLAG)).drop(FLAG))
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    write_file(path, buffer.getvalue())
