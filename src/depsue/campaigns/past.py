"""What a campaign's ledger and files tell: the readers' half of a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from depsue.campaigns.files import CampaignFiles
from depsue.campaigns.prepared import hash_of, load_model
from depsue.campaigns.settings import CampaignSettings
from depsue.certificates import Certificate
from depsue.data.catalogue import ActionCatalogue
from depsue.data.logs import LoggedData
from depsue.data.mapped import read_from
from depsue.errors import ConfigError, FileError, require
from depsue.learners.course import Course
from depsue.learners.exploring import Choice, choices
from depsue.learners.prepare import Expected
from depsue.ledger import Attempt, Candidate, Deployment, Ledger, Observation
from depsue.policies import BasePolicy, load
from depsue.policies.adapted import Adapted
from depsue.policies.scores import Scores
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

    def source(self, seen: Observation) -> str:
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

    def decided(self, k: int) -> tuple[Candidate, Attempt] | None:
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

    def course(self) -> Course:
        """All that the rounds so far have told, in terms of the newest catalogue."""
        explore = self.settings.explore
        level = explore.level / (2.0 if self.settings.retries else 1.0)
        newest = self.round - 1
        catalogue = self.files.items(newest)
        first = self._logs_on(0, catalogue)
        base = self.widened(self.pi0, catalogue)
        pi0, stretch = self._pi0_now(newest, base, first)
        if pi0 is not base:  # V(pi0) of the first logs is no longer what pi0 earns
            explore = replace(explore, no_drift=False)
        course = Course(explore, pi0, first, self.name, level, base=base, stretch=stretch)
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

    def model(self, candidate: Candidate) -> RewardModel:
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
        return Adapted(policy, np.ones(len(catalogue), dtype=bool))

    def withdrawn(self, k: int) -> list[str]:
        return list(self.ledger.observations(self.name)[k].summary.get("withdrawn", ()))

    def pi0_today(self, k: int) -> BasePolicy:
        """pi0 over the items that round k's rows are read with, without those withdrawn."""
        catalogue = self.files.items(k)
        gone = np.isin(catalogue.ids.astype(str), self.withdrawn(k))
        if not gone.any():
            return self.widened(self.pi0, catalogue)
        return Adapted(self.pi0, ~gone)

    def _pi0_now(self, k: int, base: BasePolicy, logs: LoggedData) -> tuple[BasePolicy, float]:
        """pi0 without what was withdrawn, and how much larger its probabilities may be by that."""
        found = self.pi0_today(k)
        if not isinstance(found, Adapted) or not self.withdrawn(k):
            return base, 1.0
        share = found.withdrawn_share(logs.contexts)
        if share == 0.0:  # only items that pi0 never showed
            return base, 1.0
        return found, 1.0 / (1.0 - min(1.25 * share + 0.01, 0.99))  # some room for new contexts

    def decisions(self, course: Course) -> int:
        return self.settings.decisions or len(course.newest)

    def candidates(self, k: int) -> list[Candidate]:
        return [one for one in self.ledger.policies(self.name) if one.round == k]

    def newest_candidate(self, k: int) -> Candidate:
        found = self.candidates(k)
        require(
            bool(found),
            "a candidate is trained before it is certified",
            found=f"none in round {k} of campaign {self.name!r}",
            cure=f"depsue campaign train {self.name}",
        )
        return found[-1]

    def attempt_of(self, k: int, candidate: str) -> Attempt | None:
        for one in self.ledger.attempts(self.name):
            if (one.round, one.policy_hash) == (k, candidate):
                return one
        return None

    def deployed(self, k: int) -> list[Deployment]:
        return [one for one in self.ledger.deployments(self.name) if one.round == k]
