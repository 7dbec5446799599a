"""A campaign: K rounds of train, certify, deploy and observe, every step of it in the ledger.

Each step looks up in the ledger what is done and does the rest, so a step that was cut short is
simply called again. What is written first are files, then the record that names them: a record
never names a file that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from depsue import rng
from depsue.campaigns.items import changed_items
from depsue.campaigns.past import Past
from depsue.campaigns.prepared import (
    candidate_hash,
    fixed_of,
    hash_of,
    load_prepared,
    said_of_outside,
    save_prepared,
)
from depsue.campaigns.summary import summary_of
from depsue.certificates import Folds, require_propensities
from depsue.certificates.drawn_by import require_drawn_by
from depsue.data.catalogue import ActionCatalogue
from depsue.data.logs import LoggedData
from depsue.data.mapped import read_from
from depsue.data.mapping import LogMapping
from depsue.data.mapping_file import read_mapping
from depsue.errors import ConfigError, DataError, require
from depsue.learners.candidates import FEWEST_REWARDS
from depsue.learners.exploring import certified_policy, settle
from depsue.learners.prepare import prepare
from depsue.ledger import Attempt, Candidate, Deployment, Observation
from depsue.policies import BasePolicy, Mixture, save
from depsue.progress import Watch, silent


class Campaign(Past):
    """One campaign, as its ledger and its files have it; `depsue.campaigns.create` begins one."""

    def train(self, *, seed: int | None = None, watch: Watch = silent) -> Candidate:
        """Learn a candidate for the round, and record it with all that is fixed beforehand.

        Args:
            seed: of its training; None derives it from the campaign's.
            watch: shows progress.
        """
        k = self._current("train")
        made = self.candidates(k)
        if made and seed is None:
            return made[-1]
        self._require_no_verdict(k, "train")
        course = self.course()
        before = course.before(self.decisions(course))
        folds = before.folds
        require_propensities(folds.learn, folds.select, logging_policy=before.base)
        self.notes = tuple(_too_few(folds))
        of_round = rng.derive(self.settings.seed if seed is None else seed, "exploration", k)
        with rng.one_thread():
            prepared = prepare(before, course.settings, seed=of_round, watch=watch)
        declared = (
            *self.files.mapping(k - 1).assumptions,
            *self._said_of_items(k - 1),
            *said_of_outside(self.pi0),
        )
        prepared = replace(prepared, rules=replace(prepared.rules, assumptions=declared))
        fixed = fixed_of(prepared)
        hash = candidate_hash(fixed)
        folder = self.files.candidate(k, hash)
        save_prepared(prepared, folder, folds.learn.catalogue)
        certain = course.settings.certain
        allowed = [self._keep(k, course.pi0, folds.learn.catalogue)]
        if certain > 0:
            mixture = Mixture([course.pi0, prepared.new], [1 - certain, certain])
            allowed.append(self._keep(k, mixture, folds.learn.catalogue))
        return self.ledger.record_policy(
            self.name,
            k,
            policy_hash=hash,
            folder=str(folder.relative_to(self.files.folder)),
            trained_on=[one.data_hash for one in self.ledger.observations(self.name)],
            fixed={**fixed, "certain": allowed},
            by=self.by,
        )

    def certify(self, *, watch: Watch = silent) -> Attempt:
        """Put the newest candidate to the test, once; what came of it the first time, if again.

        Args:
            watch: shows progress.
        """
        k = self._current("certify")
        candidate = self.newest_candidate(k)
        done = self.attempt_of(k, candidate.policy_hash)
        if done is not None and done.state != "open":
            return done
        with self.ledger.reads(self.name, k, candidate.policy_hash, by=self.by) as reads:
            course = self.course()
            before = course.before(self.decisions(course))
            folder = self.files.candidate(k, candidate.policy_hash)
            with rng.one_thread():
                prepared = load_prepared(folder, candidate.fixed, before, self.outside)
                explored = settle(prepared, before, course.settings, reads=reads, watch=watch)
                if explored.certificate.passed:
                    policy = certified_policy(explored.certificate, prepared)
                    self._keep(k, policy, before.folds.certify.catalogue)
            return reads.finish(explored.certificate)

    def deploy(self, what: str | None = None) -> Deployment:
        """Record that a policy serves from now on.

        Args:
            what: "certified", "certain" or "pi0"; None takes the best by the objective.
        """
        k = self._current("deploy")
        found = {one.what: one for one in self.choices(k)}
        require(
            bool(found),
            "a round has a verdict before something is deployed",
            found=f"none in round {k} of {self.name!r}",
            cure="certify first; pi0 goes on serving without any of this",
        )
        wanted = next(iter(found)) if what is None else what
        require(
            wanted in found,
            f"what may be deployed now is one of {', '.join(found)}",
            found=wanted,
            cure="depsue campaign status says why",
        )
        hash = self.hash_of_choice(k, found[wanted])  # type: ignore[index]
        self.policy(k, hash)  # what cannot be loaded is not deployed
        return self.ledger.deploy(self.name, k, hash, by=self.by)

    def rollback(self, to: int = 0) -> Deployment:
        """Serve what served before, from now on: pi0, or what an earlier round deployed.

        Args:
            to: 0 for pi0, else the round.
        """
        k = min(self.round, self.rounds)
        if to == 0:
            hash = self._keep(k, self.pi0_today(self.round - 1), self.files.items(self.round - 1))
        else:
            served = [one for one in self.ledger.deployments(self.name) if one.round == to]
            require(
                bool(served) and to <= k,
                "a rollback goes to pi0 or to a round that deployed something",
                found=f"round {to}",
                cure="--to 0 is pi0",
            )
            hash = served[-1].policy_hash
        self.policy(k, hash)  # what cannot be loaded does not serve
        return self.ledger.deploy(self.name, k, hash, "rollback", by=self.by)

    def observe(
        self,
        source: str | Path,
        *,
        mapping: LogMapping | str | Path | None = None,
        items: str | Path | None = None,
        id: str | None = None,
    ) -> Observation:
        """Take in what a round logged.

        Args:
            source: a file, a folder or a pattern.
            mapping: which column is what, or the TOML file that says so; None as before.
            items: the items file from the next round on, if items arrived or were withdrawn.
            id: its column of ids.
        """
        k = self.round
        last = self.files
        if mapping is None:
            mapping = replace(last.mapping(k - 1), kept=1.0)  # only pi0's logs lost rows
        elif not isinstance(mapping, LogMapping):
            mapping = read_mapping(mapping)
        catalogue = last.items(k - 1)
        logs = read_from(source, mapping, catalogue, k)
        change: dict[str, list[str]] = {"withdrawn": self.withdrawn(k - 1)}
        for known in self.ledger.observations(self.name):
            if self._same(known, logs):
                return self._known(known, source)
        self._current("observe")
        require(
            bool(self.deployed(k)),
            "a round is observed after something was deployed in it",
            found=f"no deployment in round {k} of campaign {self.name!r}",
            cure="train, certify and deploy first; where pi0 went on serving: rollback",
        )
        first = last.mapping(0)
        require(
            mapping.r_max == first.r_max,
            "the largest reward is declared once for a campaign",
            found=f"r_max {mapping.r_max:g}, at creation {first.r_max:g}",
            cure="scale the rewards, or begin a new campaign",
        )
        served = self._drew(k, logs)
        promises = self.settings.explore.promises
        summary = summary_of(logs, promises, self.widened(self.policy(k, served), catalogue))
        if items is not None:
            found = changed_items(catalogue, items, id)
            catalogue = found.catalogue
            logs = replace(logs, catalogue=catalogue)
            change = {"arrived": list(found.arrived), "withdrawn": list(found.withdrawn)}
        self.files.save_items(k, catalogue)
        self.files.save_mapping(k, mapping)
        return self.ledger.observe(
            self.name,
            k,
            data_hash=logs.hash,
            rows=len(logs),
            source=str(Path(source).absolute()),
            summary={**summary, **change, "served": served},
            by=self.by,
        )

    def _known(self, known: Observation, source: str | Path) -> Observation:
        """Rows that were observed before: once, and from now on at this place."""
        place = str(Path(source).absolute())
        if place != self.source(known):
            self.files.save_place(known.round, place)
            said = f"already observed as round {known.round}; from now on they are read at {place}"
        else:
            k = self.round
            require(
                known.round == k - 1 and not self.deployed(k),
                f"round {k} waits for rows of its own",
                found=f"{source} was observed as round {known.round} by {known.by}",
                cure="give what was logged since the last deployment",
            )
            said = f"already observed as round {known.round}; nothing was changed"
        self.notes = (said,)
        return known

    @staticmethod
    def _same(known: Observation, logs: LoggedData) -> bool:
        """Whether these rows were observed before, as another round's."""
        if known.rows != len(logs):
            return False
        if known.round == 0 and bool(logs.catalogue.novel[logs.action].any()):
            return False
        rounds = np.full(len(logs), known.round, dtype=np.int16)
        return replace(logs, round=rounds).hash == known.data_hash

    def _drew(self, k: int, logs: LoggedData) -> str:
        """Which of the round's deployments drew these rows; the newest if it did."""
        refusal: DataError | None = None
        for one in reversed(self.deployed(k)):
            try:
                require_drawn_by(
                    self.widened(self.policy(k, one.policy_hash), logs.catalogue), logs
                )
                return one.policy_hash
            except DataError as problem:
                refusal = refusal or problem
        raise refusal or RuntimeError("the round has a deployment")

    def _said_of_items(self, k: int) -> list[str]:
        """What changed items do to the certificate, in words."""
        summary = self.ledger.observations(self.name)[k].summary
        said = []
        if summary.get("arrived"):
            said.append(
                f"items that arrived before these rows were certified on: "
                f"{len(summary['arrived'])}; no row shows them, so their reward counts as zero"
            )
        if summary.get("withdrawn"):
            said.append(
                f"items that are withdrawn: {len(summary['withdrawn'])}; pi0, which the floor is "
                "taken of, is pi0 without them, its other probabilities raised in proportion"
            )
        return said

    def _keep(self, k: int, policy: object, catalogue: ActionCatalogue) -> str:
        """Save a policy that may be served; its hash."""
        if not isinstance(policy, BasePolicy):
            raise ConfigError("a policy of a campaign must be savable", found=type(policy).__name__)
        hash = hash_of(policy)
        if policy is not self.pi0:
            save(policy, self.files.policy(k, hash), catalogue=catalogue)
        return hash

    def _current(self, step: str) -> int:
        k = self.round
        require(
            k <= self.rounds,
            f"a campaign of {self.rounds} rounds has {self.rounds} deployments",
            found=f"{step} after the last round was observed",
            cure="begin a new campaign with what was learned: its last policy can be the new pi0",
        )
        return k

    def _require_no_verdict(self, k: int, step: str) -> None:
        spent = [one for one in self.ledger.attempts(self.name) if one.round == k]
        require(
            not spent or self.settings.retries,
            "once a verdict has read the certifying rows, another candidate would be a second try",
            found=f"{step} again in round {k}, after {spent[0].by if spent else ''} certified",
            cure="deploy what may be deployed; retries are declared when a campaign is created",
        )


def _too_few(folds: Folds) -> Iterator[str]:
    """A word where a certificate has hardly a chance."""
    rewards = sum(int((one.reward > 0).sum()) for one in (folds.learn, folds.select))
    if rewards < FEWEST_REWARDS:
        yield (
            f"warning: {rewards} rows with a reward to learn from: a certificate will hardly pass, "
            "and certifying uses these rows up; depsue plan says how many rows would do"
        )
