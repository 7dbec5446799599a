"""A campaign: K rounds of train, certify, deploy and observe, every step of it in the ledger.

Each step looks up in the ledger what is done and does the rest, so a step that was cut short is
simply called again. What is written first are files, then the record that names them: a record
never names a file that is not there.

What a campaign's ledger and files tell: the readers' half of a campaign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from depsue import rng
from depsue.campaigns.files import (
    CampaignFiles,
    candidate_hash,
    fixed_of,
    hash_of,
    load_model,
    load_prepared,
    said_of_outside,
    save_prepared,
)
from depsue.campaigns.observing import changed_items, summary_of
from depsue.campaigns.settings import CampaignSettings
from depsue.certificates import Certificate, Folds
from depsue.data.catalogue import ActionCatalogue
from depsue.data.logs import LoggedData
from depsue.data.mapping import LogMapping, read_mapping
from depsue.data.reading import read_from
from depsue.diagnostics import require_propensities
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import ConfigError, DataError, FileError, require
from depsue.exploration.candidates import FEWEST_REWARDS
from depsue.exploration.round import (
    Choice,
    Expected,
    certified_policy,
    certify_round,
    choices,
    prepare,
)
from depsue.exploration.rounds import CampaignState
from depsue.ledger import (
    AttemptRecord,
    CandidateRecord,
    DeploymentRecord,
    Ledger,
    ObservationRecord,
)
from depsue.policies import BasePolicy, Mixture, load, save
from depsue.policies.restricted import RestrictedPolicy
from depsue.policies.scores import Scores
from depsue.progress import Watch, silent
from depsue.protocols import RewardModel


class Past:
    """What happened in one campaign so far.

    Args:
        ledger: where it is recorded.
        home: the folder of all campaigns.
        name: of this one.
        by: who acts.
        notes: what was settled by rule when it was made.
        outside: callables that its policies were saved with by name.
    """

    def __init__(
        self,
        ledger: Ledger,
        home: str | Path,
        name: str,
        *,
        by: str,
        notes: tuple[str, ...] = (),
        outside: Mapping[str, Scores] | None = None,
    ) -> None:
        self.ledger, self.name, self.by, self.notes = ledger, name, by, notes
        self.outside = {} if outside is None else outside
        self.files = CampaignFiles(home, name)
        self.record = ledger.campaign(name)
        self.settings = CampaignSettings.from_json(
            self.record.settings["campaign"], retries=self.record.retries
        )

    @property
    def rounds(self) -> int:
        """K."""
        return self.record.rounds

    @property
    def round(self) -> int:
        """The round that is under way: the one after the newest that was observed."""
        return len(self.ledger.observations(self.name))

    @cached_property
    def pi0(self) -> BasePolicy:
        """The logging policy."""
        found = load(self.files.pi0, outside=self.outside)
        require(
            hash_of(found) == self.record.settings["pi0"],
            "pi0 must be the one that the campaign was created with",
            found=f"another policy in {self.files.pi0}",
            cure="restore the folder from a copy",
        )
        return found

    def policy(self, k: int, hash: str) -> BasePolicy:
        """A policy of this campaign by its hash."""
        if hash == self.record.settings["pi0"]:
            return self.pi0
        folder = self.folder_of(k, hash)
        found = load(folder, outside=self.outside)
        require(
            hash_of(found) == hash,
            "a policy's files must be those that were recorded",
            found=f"another policy in {folder}",
            cure="restore the folder from a copy",
            error=FileError,
        )
        return found

    def folder_of(self, k: int, hash: str) -> Path:
        """Where a policy of round k, or of an earlier one, is saved."""
        if hash == self.record.settings["pi0"]:
            return self.files.pi0
        for place in range(k, 0, -1):
            folder = self.files.policy(place, hash)
            if folder.exists():
                return folder
        raise FileError(
            "a policy of the campaign must have its files",
            found=f"none for {hash[:16]} in {self.files.folder}",
            cure="restore the folder from a copy",
        )

    def source(self, seen: ObservationRecord) -> str:
        """Where the rows of an observation are now."""
        return self.files.place(seen.round) or seen.source

    def logs(self, k: int) -> LoggedData:
        """The rows of round k, read again and held against the ledger."""
        found = self.ledger.observations(self.name)[k]
        place = self.source(found)
        try:
            logs = read_from(place, self.files.mapping(k), self.files.items(k), k)
        except FileError as problem:
            raise FileError(
                f"the logs of round {k} must be where they were observed",
                found=f"{place}: {problem.found}",
                cure="put them back, or name their new place: depsue campaign observe "
                f"{self.name} PATH",
            ) from problem
        if logs.hash != found.data_hash:
            raise FileError(
                "the logs of a round must be as they were observed",
                found=f"{place} has the hash {logs.hash[:12]}, observed was "
                f"{found.data_hash[:12]}, with {found.rows:,} rows",
                cure="put the files of that day back",
            )
        return logs

    def decided(self, k: int) -> tuple[CandidateRecord, AttemptRecord] | None:
        """The candidate that a round goes by: the newest that passed, else the newest verdict."""
        found = []
        for candidate in self.candidates(k):
            attempt = self.attempt_of(k, candidate.policy_hash)
            if attempt is not None and attempt.certificate is not None:
                found.append((candidate, attempt))
        return max(found, key=lambda one: (one[1].passed, one[1].attempt), default=None)

    def choices(self, k: int | None = None) -> tuple[Choice, ...]:
        """What may be deployed in a round, the best by the objective first; () before a verdict."""
        decided = self.decided(self.round if k is None else k)
        if decided is None:
            return ()
        candidate, attempt = decided
        return choices(
            Certificate.from_json(attempt.certificate or ""),
            Expected(**candidate.fixed["expected"]),
            self.settings.explore,
            aim=candidate.fixed["shares"][-1][1],
        )

    def hash_of_choice(self, k: int, choice: Choice) -> str:
        """The policy that a choice of round k means."""
        decided = self.decided(k)
        if decided is None:
            raise ConfigError("a choice needs a verdict", found=f"none in round {k}")
        candidate, attempt = decided
        if choice.what == "certified" and attempt.certified is not None:
            return attempt.certified
        return str(candidate.fixed["certain"][1 if choice.what == "certain" else 0])

    def what_is(self, k: int, hash: str) -> Choice:
        """What a deployed policy was when it was chosen."""
        for place in range(k, 0, -1):
            if not self.candidates(place):
                continue
            for one in self.choices(place):
                if self.hash_of_choice(place, one) == hash:
                    return one
        return Choice("pi0", 0.0, 1.0, "pi0")

    def course(self) -> CampaignState:
        """All that the rounds so far have told, in terms of the newest catalogue."""
        explore = self.settings.explore
        level = explore.delta_of_deployment / (2.0 if self.settings.retries else 1.0)
        newest = self.round - 1
        catalogue = self.files.items(newest)
        first = self._logs_on(0, catalogue)
        base = self.widened(self.pi0, catalogue)
        pi0, stretch = self._pi0_now(newest, base, first)
        if pi0 is not base:  # V(pi0) of the first logs is no longer what pi0 earns
            explore = replace(explore, no_drift=False)
        course = CampaignState(explore, pi0, first, self.name, level, base=base, stretch=stretch)
        for k, seen in enumerate(self.ledger.observations(self.name)[1:], start=1):
            served = self.policy(k, seen.summary["served"])
            policy = base if served is self.pi0 else self.widened(served, catalogue)
            choice = self.what_is(k, seen.summary["served"])
            trust = float(self.newest_candidate(k).fixed["trust"]) if self.candidates(k) else 1.0
            course.observe(
                self._logs_on(k, catalogue),
                policy,
                novelty=choice.novelty,
                certified=choice.what == "certified",
                trust=trust,
            )
        return course

    def model(self, candidate: CandidateRecord) -> RewardModel:
        """q-hat of a candidate, which `verify` needs where there was a control variate."""
        return load_model(self.files.candidate(candidate.round, candidate.policy_hash))

    def _logs_on(self, k: int, catalogue: ActionCatalogue) -> LoggedData:
        """The rows of round k, with the catalogue of today; known items keep their places."""
        logs = self.logs(k)
        if logs.catalogue.hash == catalogue.hash:
            return logs
        return replace(logs, catalogue=catalogue)

    def widened(self, policy: BasePolicy, catalogue: ActionCatalogue) -> BasePolicy:
        """The policy over the items of today, of which it knows the first."""
        if policy.n_actions == len(catalogue):
            return policy
        return RestrictedPolicy(policy, np.ones(len(catalogue), dtype=bool))

    def withdrawn(self, k: int) -> list[str]:
        return list(self.ledger.observations(self.name)[k].summary.get("withdrawn", ()))

    def pi0_today(self, k: int) -> BasePolicy:
        """pi0 over the items that round k's rows are read with, without those withdrawn."""
        catalogue = self.files.items(k)
        gone = np.isin(catalogue.ids.astype(str), self.withdrawn(k))
        if not gone.any():
            return self.widened(self.pi0, catalogue)
        return RestrictedPolicy(self.pi0, ~gone)

    def _pi0_now(self, k: int, base: BasePolicy, logs: LoggedData) -> tuple[BasePolicy, float]:
        """pi0 without what was withdrawn, and how much larger its probabilities may be by that."""
        found = self.pi0_today(k)
        if not isinstance(found, RestrictedPolicy) or not self.withdrawn(k):
            return base, 1.0
        share = found.withdrawn_share(logs.contexts)
        if share == 0.0:  # only items that pi0 never showed
            return base, 1.0
        return found, 1.0 / (1.0 - min(1.25 * share + 0.01, 0.99))  # some room for new contexts

    def decisions(self, course: CampaignState) -> int:
        return self.settings.decisions or len(course.newest)

    def candidates(self, k: int) -> list[CandidateRecord]:
        return [one for one in self.ledger.policies(self.name) if one.round == k]

    def newest_candidate(self, k: int) -> CandidateRecord:
        found = self.candidates(k)
        require(
            bool(found),
            "a candidate is trained before it is certified",
            found=f"none in round {k} of campaign {self.name!r}",
            cure=f"depsue campaign train {self.name}",
        )
        return found[-1]

    def attempt_of(self, k: int, candidate: str) -> AttemptRecord | None:
        for one in self.ledger.attempts(self.name):
            if (one.round, one.policy_hash) == (k, candidate):
                return one
        return None

    def deployed(self, k: int) -> list[DeploymentRecord]:
        return [one for one in self.ledger.deployments(self.name) if one.round == k]


class Campaign(Past):
    """One campaign, as its ledger and its files have it; `depsue.campaigns.create` begins one."""

    def train(self, *, seed: int | None = None, watch: Watch = silent) -> CandidateRecord:
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

    def certify(self, *, watch: Watch = silent) -> AttemptRecord:
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
                explored = certify_round(
                    prepared, before, course.settings, reads=reads, watch=watch
                )
                if explored.certificate.passed:
                    policy = certified_policy(explored.certificate, prepared)
                    self._keep(k, policy, before.folds.certify.catalogue)
            return reads.finish(explored.certificate)

    def deploy(self, what: str | None = None) -> DeploymentRecord:
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

    def rollback(self, to: int = 0) -> DeploymentRecord:
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
    ) -> ObservationRecord:
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

    def _known(self, known: ObservationRecord, source: str | Path) -> ObservationRecord:
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
    def _same(known: ObservationRecord, logs: LoggedData) -> bool:
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
