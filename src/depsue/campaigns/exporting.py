"""What a serving system takes: the policy, its certificate and the items, in one folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from depsue import codec
from depsue.campaigns import scoring
from depsue.campaigns.campaign import Campaign
from depsue.campaigns.files import file_hash
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, finite_matrix
from depsue.data.items import read_items
from depsue.data.lists import candidates_of
from depsue.data.mapping import LogMapping, read_mapping, write_mapping
from depsue.data.reading import contexts_of
from depsue.data.requests import Requests
from depsue.data.writing import write_items
from depsue.errors import FileError, require, require_path, short
from depsue.files import write_file
from depsue.policies import BasePolicy, load
from depsue.savable import POLICY, Savable, hash_of, required_hash
from depsue.scores import Scores


@dataclass(frozen=True, eq=False)
class Export:
    """What serves, as `depsue campaign export` wrote it.

    Args:
        policy: it chooses among the items by their place in the catalogue.
        catalogue: the items.
        mapping: how a decision's columns become a context: numbers as they are, in the mapping's
            order, then 1 or 0 for each declared value of each text column.
        facts: where the policy comes from.
    """

    policy: BasePolicy
    catalogue: Catalogue
    mapping: LogMapping
    facts: ExportFacts

    def contexts(self, rows: Sequence[Mapping[str, Any]]) -> FloatArray:
        """(m, d) contexts of decisions that are given as columns by name."""
        import polars as pl

        names = [*self.mapping.numeric, *self.mapping.categorical]
        for place, row in enumerate(rows):
            missing = [name for name in names if name not in row]
            require(
                not missing,
                "a decision names every context column of the mapping",
                found=f"row {place} lacks {', '.join(missing)}",
                cure=f"the columns are {', '.join(names) or 'none'}",
            )
        columns: dict[str, Any] = {
            f"x:{name}": pl.Series([row[name] for row in rows], dtype=pl.Float64)
            for name in self.mapping.numeric
        }
        for name in self.mapping.categorical:
            columns[f"x:{name}"] = pl.Series([str(row[name]) for row in rows], dtype=pl.String)
        table = pl.DataFrame(columns) if columns else pl.DataFrame({"row": range(len(rows))})
        return finite_matrix(contexts_of(table, self.mapping), "contexts")

    def requests(self, rows: Sequence[Mapping[str, Any]]) -> Requests:
        """(m,) requests of decisions that are given as columns by name.

        Where the mapping names a column of candidates, each row has its list of them, and of pi0's
        probabilities of them where pi0 is known by these.
        """
        contexts, names = self.contexts(rows), self.mapping
        if names.candidates is None:
            return Requests(contexts)
        lists = _column(rows, names.candidates, "the ids of the items that could be shown")
        shares = None
        if names.probabilities and any(names.probabilities in row for row in rows):
            what = "pi0's probabilities of the candidates, in their order"
            shares = _column(rows, names.probabilities, what)
        return Requests(contexts, candidates_of(lists, shares, self.catalogue, names.given_as))

    def decide(
        self, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
    ) -> tuple[list[Any], FloatArray]:
        """The ids of the items to show, and the probabilities to log with them.

        Args:
            rows: the columns of each decision by name: contexts, and candidates and pi0's
                probabilities of them where the campaign's logs have these.
            rng: draws.
        """
        require(
            not self.policy.rests_on_choice,
            "where pi0 is known by what it chose, a decision begins with its choice",
            found="no choice of pi0",
            cure="decide_beside(rows, rng), with chosen and chosen_probability in each row",
        )
        places, probabilities = self.policy.sample(self.requests(rows), rng)
        return self.catalogue.ids[places].tolist(), probabilities

    def decide_beside(
        self, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator
    ) -> tuple[list[Any], FloatArray, FloatArray]:
        """The same where pi0 is known by what it chose; and (m,) by_pi0, to log with them.

        Args:
            rows: as for `decide`, and what pi0 chose: `chosen`, with `chosen_probability`.
            rng: draws.
        """
        requests, m = self.requests(rows), len(rows)
        ids = _column(rows, "chosen", "the id of the item that pi0 chose")
        known = {id: place for place, id in enumerate(self.catalogue.ids.tolist())}
        choice: IntArray = np.array([known.get(id, -1) for id in ids], dtype=np.int64)
        at = np.where(choice < 0, -1, requests.place(choice, np.arange(m)))
        lost = np.flatnonzero(at < 0)
        require(
            not len(lost),
            "what pi0 chose must be one of the candidates",
            found=f"row {lost[0]}: {short(ids[lost[0]])}" if len(lost) else "",
            cure="send all that could be shown, whatever pi0 chose",
        )
        p0 = np.asarray(_column(rows, "chosen_probability", "its probability"), dtype=np.float64)
        bad = np.flatnonzero(~((p0 > 0) & (p0 <= 1)))
        require(
            not len(bad),
            "the probability of pi0's choice lies in (0, 1]",
            found=f"row {bad[0]}: {p0[bad[0]]:g}" if len(bad) else "",
            cure="send the probability with which pi0 chose the item",
        )
        table = np.array(self.policy.besides_pi0(requests), dtype=np.float64)
        share = np.asarray(self.policy.pi0_share(requests), dtype=np.float64)
        total = share + table.sum(axis=1)
        share = np.where(total > 0, share / np.where(total > 0, total, 1.0), 1.0)
        table = np.cumsum(table / np.where(total > 0, total, 1.0)[:, None], axis=1)
        mine = np.arange(m)
        by_pi0 = (rng.random(m) < share) | (table[:, -1] <= 0)
        target = rng.random(m) * table[:, -1]
        drawn = np.where(by_pi0, at, (table > target[:, None]).argmax(axis=1))
        p_drawn = np.diff(table, axis=1, prepend=0.0)[mine, drawn]
        places = drawn
        if (sets := requests.sets) is not None:
            places = sets.items[sets.starts[:-1] + drawn]
        return (
            self.catalogue.ids[places].tolist(),
            np.where(by_pi0, share * p0, p_drawn),
            np.where(by_pi0, p0, 0.0),
        )


def _column(rows: Sequence[Mapping[str, Any]], name: str, what: str) -> list[Any]:
    """A column that every row needs."""
    missing = [place for place, row in enumerate(rows) if row.get(name) is None]
    require(
        not missing,
        "every decision brings what the campaign's logs have",
        found=f"row {missing[0]} has no {name!r}" if missing else "",
        cure=f"{name}: {what}",
    )
    return [row[name] for row in rows]


FACTS = "export.json"
FILES = (
    *("policy/manifest.json", "items.parquet", "mapping.toml", "certificate.json"),
    *("scoring.py", "scoring.json"),
)
"""What an export holds besides its facts; a policy's manifest pins the policy's other files."""


@dataclass(frozen=True)
class ExportFacts:
    """Where an exported policy comes from.

    Args:
        campaign: its name.
        round: in which it serves; 0 is pi0 before any deployment.
        policy: SHA-256.
        what: certified, certain or pi0.
        made_in: the round that made it: another than `round` after a rollback; 0 for pi0.
        files: SHA-256 by name of every file of the export.
    """

    campaign: str
    round: int
    policy: str
    what: Literal["certified", "certain", "pi0"]
    made_in: int
    files: dict[str, str]

    @property
    def sha256(self) -> str:
        """Of all of it."""
        return hashlib.sha256(codec.encode(self, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class _FactsFile:
    """`export.json`: the facts, and their SHA-256."""

    export: ExportFacts
    sha256: str


def load_export(folder: str | Path, *, outside: Mapping[str, Scores] | None = None) -> Export:
    """What `depsue campaign export` wrote; damaged or edited files are refused."""
    require_path(folder, "an export")
    place = Path(folder)
    facts = _facts_in(place)
    policy = load(place / "policy", outside=outside)
    require(
        hash_of(policy) == facts.policy,
        "the policy of an export must be the one that was exported",
        found=f"another policy in {place / 'policy'}",
        cure="export it again: depsue campaign export",
        error=FileError,
    )
    items = read_items(place / "items.parquet", id="id").catalogue
    return Export(policy, items, read_mapping(place / "mapping.toml"), facts)


def _facts_in(folder: Path) -> ExportFacts:
    """The facts of an export, every file held against its SHA-256."""
    path = folder / FACTS
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise FileError(
            "the folder must hold an export",
            found=f"{path}: {problem.strerror}",
            cure="depsue campaign export writes one",
        ) from problem
    again = "export it again: depsue campaign export"
    try:
        file = codec.decode(text, _FactsFile, what="the facts of an export")
        facts = file.export if file.export.sha256 == file.sha256 else None
    except FileError:  # of an older version, which pinned nothing, or not JSON
        facts = None
    if facts is None:
        raise FileError(
            "the facts of an export must match their SHA-256",
            found=f"{path} was edited, or an older version wrote it",
            cure=again,
        )
    for name in FILES:
        there, pin = (folder / name).exists(), facts.files.get(name)
        require(
            pin == (file_hash(folder / name) if there else None),
            "the files of an export must be those that were exported",
            found=f"{folder / name} {'was edited' if there else 'is not there'}",
            cure=again,
            error=FileError,
        )
    return facts


def export_campaign(campaign: Campaign, out: str | Path, *, round: int | None = None) -> list[str]:
    """Write what serves to a folder; returns the names of what was written.

    Args:
        campaign: the campaign.
        out: a folder that is not there yet, or is empty.
        round: what this round deployed last; None is what serves now.
    """
    folder = Path(out)
    require(
        not folder.exists() or (folder.is_dir() and not any(folder.iterdir())),
        "an export goes into a folder of its own",
        found=f"{folder} is not empty" if folder.is_dir() else f"{folder} is a file",
        cure="name another folder",
        error=FileError,
    )
    deployed = campaign.ledger.deployments(campaign.name)
    rounds = sorted({record.round for record in deployed})
    mine = [record for record in deployed if round is None or record.round == round]
    require(
        bool(mine) or round is None,
        "an export is of a round that deployed something",
        found=f"round {round}",
        cure=f"rounds with a deployment: {rounds or 'none yet'}",
    )
    hash = mine[-1].policy_hash if mine else campaign.terms.pi0
    k = mine[-1].round if mine else 0
    source = campaign.folder_of(max(k, 1), hash)
    campaign.policy(max(k, 1), hash)  # intact
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(source, partial / "policy")
    except OSError as problem:
        raise FileError(
            "the folder must be writable and have room",
            found=f"{folder}: {problem.strerror}",
            cure="choose another folder",
        ) from problem
    require(
        hash_of(load(partial / "policy", outside=campaign.outside)) == hash,
        "what is exported must be what was recorded",
        found=f"another policy in {source}",
        error=FileError,
    )
    at = max(k - 1, 0)
    write_items(campaign.files.items(at), partial / "items.parquet")
    write_mapping(campaign.files.mapping(at), partial / "mapping.toml")
    written = ["policy", "items.parquet", "mapping.toml"]
    attempts = [read for read in campaign.ledger.attempts(campaign.name) if read.certified == hash]
    if attempts and attempts[-1].certificate is not None:
        write_file(partial / "certificate.json", attempts[-1].certificate.encode())
        written.append("certificate.json")
    written += _plain_scoring(partial, campaign)
    made_in, choice = campaign.made_in(max(k, 1), hash)
    files = {name: file_hash(partial / name) for name in FILES if (partial / name).exists()}
    facts = ExportFacts(
        campaign.name, k, hash, choice.what, 0 if choice.what == "pi0" else made_in, files
    )
    content = codec.encode(_FactsFile(facts, facts.sha256), indent=1)
    write_file(partial / FACTS, content.encode())
    if folder.exists():
        folder.rmdir()
    partial.replace(folder)
    return [*written, FACTS]


def _plain_scoring(folder: Path, campaign: Campaign) -> list[str]:
    """Write the policy as a plain function beside it; names of what was written.

    Nothing where its parts have no formula: a pi0 is one whatever it is, for whoever applies the
    function brings its probabilities.
    """
    policy = load(folder / "policy", outside=campaign.outside)
    own = required_hash(campaign.pi0)
    pi0 = list(_pi0_parts(policy, own, ""))
    if not _has_formula(policy, own):
        return []
    ids = read_items(folder / "items.parquet", id="id").catalogue.ids.tolist()
    facts = json.dumps({"ids": ids, "pi0": pi0})
    write_file(folder / scoring.FILE, facts.encode())
    write_file(folder / "scoring.py", Path(scoring.__file__).read_bytes())
    return ["scoring.py", scoring.FILE]


def _parts(policy: Savable) -> Iterator[tuple[str, Savable]]:
    """Policies that a policy is made of, and how the names of their arrays begin."""
    for name, family in policy.part_families.items():
        part = policy.state().parts[name]
        several = isinstance(part, Sequence)
        for place, member in enumerate(part if several else [part]):
            if family == POLICY:
                yield f"{place if several else name}.", member.saved_as()


def _pi0_parts(policy: Savable, pi0: str, at: str) -> Iterator[str]:
    """Where pi0 stands in a policy, by how the names of its arrays begin."""
    if hash_of(policy) == pi0:
        yield at
        return
    for name, part in _parts(policy):
        yield from _pi0_parts(part, pi0, at + name)


def _has_formula(policy: Savable, pi0: str) -> bool:
    if hash_of(policy) == pi0:
        return True
    inside = all(_has_formula(part, pi0) for _, part in _parts(policy))
    return inside and policy.kind in scoring.KINDS
