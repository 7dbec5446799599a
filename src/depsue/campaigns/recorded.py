"""A campaign as its ledger and its files have it: what was done, what may be, what comes next.

Nothing here changes a record: `Campaign` takes the steps, `story_of` tells them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from depsue.campaigns.files import PINNED, CampaignFiles, load_model
from depsue.campaigns.records import CandidateFacts, RoundSummary
from depsue.campaigns.secret import secret_of
from depsue.campaigns.settings import CampaignSettings, CampaignTerms
from depsue.certificates import Certificate
from depsue.data.catalogue import Catalogue
from depsue.data.logs import LoggedData
from depsue.data.reading import open_source, read_mapped
from depsue.errors import ConfigError, FileError, require
from depsue.exploration.choices import PI0, Choice, choices
from depsue.exploration.rounds import CampaignState, of_pi0, rows_logged
from depsue.exploration.settings import ExploreSettings
from depsue.ledger import (
    AttemptRecord,
    CandidateRecord,
    DeploymentRecord,
    ErasureRecord,
    Ledger,
    ObservationRecord,
    certificate_pin,
)
from depsue.policies import BasePolicy, Mixture, RestrictedPolicy, load
from depsue.rewards import BaseRewardModel
from depsue.savable import required_hash
from depsue.scores import Scores

log = logging.getLogger(__name__)


class RecordedCampaign:
    """One campaign, as its ledger and its files have it.

    Args:
        ledger: where it is recorded.
        home: the folder of all campaigns.
        name: of this one.
        by: who acts.
        notes: what was settled by rule in the last step, in words.
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
        self.files = CampaignFiles(home, name, lambda: ledger.pins(name))
        self.record = ledger.campaign(name)
        self.terms = CampaignTerms.of(self.record)
        self._pin_older()

    @property
    def settings(self) -> CampaignSettings:
        """What the team decided when it created the campaign."""
        return self.terms.campaign

    @property
    def rounds(self) -> int:
        """K."""
        return self.record.rounds

    @property
    def round(self) -> int:
        """The round that is under way: the one after the newest that was observed."""
        return len(self.ledger.observations(self.name))

    def _pin_older(self) -> None:
        """Pin the files and certificates that an older version recorded without their SHA-256."""
        known = self.ledger.pins(self.name)
        hashes = {seen.round: self.files.hashes(seen.round) for seen in self._unpinned(known)}
        attempts: Sequence[AttemptRecord] = ()
        with suppress(FileError):  # a certificate was edited: pi0 can still be served
            attempts = self.ledger.attempts(self.name)
        for attempt in attempts:
            if attempt.pin is not None:
                pin = {certificate_pin(attempt.policy_hash): attempt.pin}
                hashes[attempt.round] = hashes.get(attempt.round, {}) | pin
        for k, of_round in hashes.items():
            new = {name: sha for name, sha in of_round.items() if (k, name) not in known}
            if not new:
                continue
            try:
                self.ledger.pin(self.name, k, new, by=self.by)
            except FileError as problem:  # a ledger that may only be read
                log.warning("not pinned", extra={"round": k, "found": str(problem)})
                return
            log.warning(
                "pinned as it is now: an older version did not",
                extra={"campaign": self.name, "round": k, "files": sorted(new)},
            )

    def _unpinned(self, known: Mapping[tuple[int, str], str]) -> list[ObservationRecord]:
        observed = self.ledger.observations(self.name)
        return [seen for seen in observed if not known.keys() & {(seen.round, n) for n in PINNED}]

    # What the ledger has of the rounds so far.

    def candidates(self, k: int) -> list[CandidateRecord]:
        """The candidates of round k, in the order in which they were trained."""
        return [record for record in self.ledger.candidates(self.name) if record.round == k]

    def newest_candidate(self, k: int) -> CandidateRecord:
        """The candidate that `certify` puts to the test in round k."""
        candidates = self.candidates(k)
        require(
            bool(candidates),
            "a candidate is trained before it is certified",
            found=f"none in round {k} of campaign {self.name!r}",
            cure=f"depsue campaign train {self.name}",
        )
        return candidates[-1]

    def attempt_of(self, k: int, candidate: str) -> AttemptRecord | None:
        """The verdict on a candidate, by its hash; None before there is one."""
        for attempt in self.ledger.attempts(self.name):
            if (attempt.round, attempt.policy_hash) == (k, candidate):
                return attempt
        return None

    def deployed(self, k: int) -> list[DeploymentRecord]:
        """What was deployed in round k, the newest last."""
        return [record for record in self.ledger.deployments(self.name) if record.round == k]

    def summaries(self) -> list[RoundSummary]:
        """What the rows of each round observed sum up to; round 0 is what pi0 logged before."""
        return [RoundSummary.of(seen) for seen in self.ledger.observations(self.name)]

    def withdrawn(self, k: int) -> tuple[str, ...]:
        """Ids of items that are no longer shown after round k."""
        return self.summaries()[k].withdrawn

    # What may be deployed.

    def decided(self, k: int) -> tuple[CandidateRecord, AttemptRecord] | None:
        """The candidate that a round goes by: the newest that passed, else the newest verdict."""
        verdicts = []
        for candidate in self.candidates(k):
            attempt = self.attempt_of(k, candidate.policy_hash)
            if attempt is not None and attempt.certificate is not None:
                verdicts.append((candidate, attempt))
        return max(verdicts, key=lambda both: (both[1].passed, both[1].attempt), default=None)

    def choices(self, k: int | None = None) -> tuple[Choice, ...]:
        """What may be deployed in a round, the best by the objective first; () before a verdict."""
        decided = self.decided(self.round if k is None else k)
        if decided is None:
            return ()
        candidate, attempt = decided
        facts = CandidateFacts.of(candidate)
        certificate = Certificate.from_json(attempt.certificate or "")
        return choices(certificate, facts.expected, self.settings.explore, aim=facts.aim)

    def hash_of_choice(self, k: int, choice: Choice) -> str:
        """The policy that a choice of round k means."""
        decided = self.decided(k)
        if decided is None:
            raise ConfigError("a choice needs a verdict", found=f"none in round {k}")
        candidate, attempt = decided
        facts = CandidateFacts.of(candidate)
        hashes = {
            "certified": attempt.certified,
            "certain": facts.certain_policy,
            "pi0": facts.pi0_policy,
        }
        return hashes[choice.what] or facts.pi0_policy

    def choice_of(self, k: int, hash: str) -> Choice:
        """What a policy that serves in round k was when it was chosen, then or before."""
        return self.made_in(k, hash)[1]

    def made_in(self, k: int, hash: str) -> tuple[int, Choice]:
        """The round that made a policy which serves in round k, and what it was there."""
        for earlier in range(k, 0, -1):
            for choice in self.choices(earlier):
                if self.hash_of_choice(earlier, choice) == hash:
                    return earlier, choice
        return 0, PI0

    def refuted(self, k: int | None = None) -> frozenset[str]:
        """Declared assumptions that a round up to k refuted; None is all rounds so far."""
        return frozenset(
            name
            for record in self.ledger.candidates(self.name)
            if k is None or record.round <= k
            for name in CandidateFacts.of(record).refuted
        )

    # Policies, models and rows, each held against its hash in the ledger.

    @cached_property
    def pi0(self) -> BasePolicy:
        """The logging policy."""
        return self._loaded(self.files.pi0, self.terms.pi0)

    def policy(self, k: int, hash: str) -> BasePolicy:
        """A policy of round k, or of an earlier one, by its hash."""
        return self.pi0 if hash == self.terms.pi0 else self._loaded(self.folder_of(k, hash), hash)

    def drawing(self, k: int, hash: str, holdout: float, catalogue: Catalogue) -> BasePolicy:
        """What drew the rows of round k: a policy, or its mixture with the holdout on pi0.

        Args:
            k: the round.
            hash: of the policy that was deployed.
            holdout: the share of decisions that pi0 took, whose rows are among the others.
            catalogue: over whose items.
        """
        policy = self.widened(self.policy(k, hash), catalogue)
        if holdout == 0:
            return policy
        pi0 = self.widened(self.pi0_today(k - 1), catalogue)
        return Mixture([policy, pi0], [1 - holdout, holdout])

    def folder_of(self, k: int, hash: str) -> Path:
        """Where a policy of round k, or of an earlier one, is saved."""
        if hash == self.terms.pi0:
            return self.files.pi0
        for earlier in range(k, 0, -1):
            folder = self.files.policy(earlier, hash)
            if folder.exists():
                return folder
        raise FileError(
            "a policy of the campaign must have its files",
            found=f"none for {hash[:16]} in {self.files.folder}",
            cure="restore the folder from a copy",
        )

    def model(self, candidate: CandidateRecord) -> BaseRewardModel:
        """q-hat of a candidate, which `verify` needs where there was a control variate."""
        folder = self.files.candidate(candidate.round, candidate.policy_hash)
        return load_model(folder, CandidateFacts.of(candidate).model, self.outside)

    def source(self, seen: ObservationRecord) -> str:
        """Where the rows of an observation are now."""
        return self.files.place(seen.round) or seen.source

    def logs(self, k: int) -> LoggedData:
        """The rows of round k, read again and held against the ledger, without erased ones."""
        seen = self.ledger.observations(self.name)[k]
        place = self.source(seen)
        try:
            opened, how = open_source(place), (self.files.mapping(k), self.files.items(k), k)
            logs = read_mapped(opened, *how)
            if logs.hash != seen.data_hash and (gone := self.erased_units(k, logs)):
                logs = read_mapped(opened, *how, without=gone)
        except FileError as problem:
            raise FileError(
                f"the logs of round {k} must be where they were observed",
                found=f"{place}: {problem.found}",
                cure="put them back, or name their new place: depsue campaign observe "
                f"{self.name} PATH",
            ) from problem
        if logs.hash != seen.data_hash:
            under_way = any(erasure.finished_at is None for erasure in self.erasures(k))
            raise FileError(
                "the logs of a round must be as they were observed"
                + ", without the rows that were erased since" * bool(seen.erased),
                found=f"{place} has the hash {logs.hash[:12]}, observed was "
                f"{seen.data_hash[:12]}, with {seen.rows:,} rows",
                cure="an erasure was cut short: run the same depsue erase again"
                if under_way
                else "put the files of that day back",
            )
        return replace(logs, erased=seen.erased) if seen.erased else logs

    def erasures(self, k: int) -> list[ErasureRecord]:
        """Erasures of rows of round k."""
        records = self.ledger.erasures(self.name)
        return [record for record in records if any(part.round == k for part in record.parts)]

    def erased_units(self, k: int, logs: LoggedData) -> list[int | str]:
        """Units in these logs whose rows were erased from round k: files of a team may have them.

        A unit that came back later has rows in later rounds, which stay.
        """
        hashes = {record.unit for record in self.erasures(k)}
        if not hashes or logs.units is None:
            return []
        hidden = secret_of(self).hidden
        return [unit for unit in logs.units.tolist() if hidden("unit", str(unit)) in hashes]

    # What the next round begins with.

    def state(self, explore: ExploreSettings | None = None) -> CampaignState:
        """All that the rounds so far have told, in terms of the newest catalogue.

        Args:
            explore: what the next round is for; None is what the campaign was created with.
        """
        explore = self.settings.explore if explore is None else explore
        require_same_split(explore, self.settings.explore)
        # of a first attempt: attempt j is tested at delta 2^-j where retries were declared
        delta = explore.delta_of_deployment / (2.0 if self.settings.retries else 1.0)
        delta *= self.ledger.share_of_delta(self.name)
        newest = self.round - 1
        catalogue = self.files.items(newest)
        first = self._logs_on(0, catalogue)
        base = self.widened(self.pi0, catalogue)
        pi0, stretch = self._pi0_now(newest, base, first)
        if pi0 is not base:  # V(pi0) of the first logs is no longer what pi0 earns
            explore = replace(explore, no_drift=False)
        state = CampaignState(
            explore,
            pi0,
            first,
            self.ledger.registration(self.name, 0),
            delta,
            campaign=self.name,
            base=base,
            stretch=stretch,
            decisions=self.settings.decisions,
            refuted=self.refuted(),
            fixed_length=not self.summaries()[0].ended,
            unpooled=self._unpooled(),
        )
        for k, summary in enumerate(self.summaries()[1:], start=1):
            policy = base
            if summary.served != self.terms.pi0 or summary.holdout:
                policy = self.drawing(k, summary.served, summary.holdout, catalogue)
            made_in, choice = self.made_in(k, summary.served)
            candidates = self.candidates(k)
            state.observe(
                self._logs_on(k, catalogue),
                policy,
                self.ledger.registration(self.name, k),
                novelty=choice.part,
                certified=choice.what == "certified",
                trust=CandidateFacts.of(candidates[-1]).trust if candidates else 1.0,
                decisions=summary.decisions,
                by_pi0=summary.by_pi0,
                fixed_length=not summary.ended,
                pi0_share=self._pi0_share(made_in, base, first),
                holdout=summary.holdout,
                pi0_kept=min(self._pi0_kept(k, base, first), default=0.0),
            )
        return state

    def _unpooled(self) -> str:
        """Why rows of earlier rounds may not be pooled, in words; "" if they may.

        What happened once counts for good: rows that were reserved teach from then on.
        """
        rounds = range(self.round)
        if not self.settings.explore.reserved:
            return ""
        first = self.files.items(0).hash
        changed = any(summary.arrived or summary.withdrawn for summary in self.summaries())
        if changed or any(self.files.items(k).hash != first for k in rounds):
            return "the items have changed"
        if any(self.files.mapping(k).kept < 1 for k in rounds):
            return "rows of some items were dropped from the logs"
        if any(seen.erased for seen in self.ledger.observations(self.name)):
            return "rows were erased on request of users"
        if others := self.ledger.read_elsewhere(self.name, since=1):
            return f"verdicts of {', '.join(others)} have read rows of these rounds"
        return ""

    def _pi0_kept(self, k: int, base: BasePolicy, first: LoggedData) -> Iterator[float]:
        """Share of pi0 in each policy that was deployed in round k, replaced ones included."""
        for deployment in self.deployed(k):
            made_in, choice = self.made_in(k, deployment.policy_hash)
            share = self._pi0_share(made_in, base, first)
            kept = of_pi0(choice.novelty, certified=choice.what == "certified", pi0_share=share)
            yield kept if made_in or deployment.policy_hash == self.terms.pi0 else 0.0

    def _pi0_share(self, k: int, base: BasePolicy, first: LoggedData) -> float:
        """Share of pi0 in the old part of what round k certified, by what was declared then."""
        explore = self.settings.explore
        if self.refuted(k) or self._pi0_now(max(k - 1, 0), base, first)[0] is not base:
            explore = replace(explore, no_drift=False)
        return explore.pi0_share

    def decisions(self, state: CampaignState) -> int:
        """Decisions that the next deployment will serve, over which margin is spread."""
        return self.settings.decisions or rows_logged(state.newest)

    def pi0_today(self, k: int) -> BasePolicy:
        """pi0 over the items that round k's rows are read with, without those withdrawn.

        A pi0 of which only the choices are known is its own choice among what is left.
        """
        catalogue = self.files.items(k)
        gone = np.isin(catalogue.ids.astype(str), self.withdrawn(k))
        if not gone.any() or self.pi0.rests_on_choice:
            return self.widened(self.pi0, catalogue)
        return RestrictedPolicy(self.pi0, ~gone)

    def widened(self, policy: BasePolicy, catalogue: Catalogue) -> BasePolicy:
        """The policy over the items of today, of which it knows the first."""
        if policy.n_actions == len(catalogue):
            return policy
        return RestrictedPolicy(policy, np.ones(len(catalogue), dtype=bool))

    def _logs_on(self, k: int, catalogue: Catalogue) -> LoggedData:
        """The rows of round k, with the catalogue of today; known items keep their places."""
        logs = self.logs(k)
        if logs.catalogue.hash == catalogue.hash:
            return logs
        return replace(logs, catalogue=catalogue)

    def _pi0_now(self, k: int, base: BasePolicy, logs: LoggedData) -> tuple[BasePolicy, float]:
        """pi0 without what was withdrawn, and how much larger its probabilities may be by that."""
        today = self.pi0_today(k)
        if not isinstance(today, RestrictedPolicy) or not self.withdrawn(k):
            return base, 1.0
        if today.rests_on_choice:  # what it would have chosen instead is not known
            return base, 1.0
        share = today.withdrawn_share(logs.requests)
        if share == 0.0:  # only items that pi0 never showed
            return base, 1.0
        return today, 1.0 / (1.0 - min(1.25 * share + 0.01, 0.99))  # some room for new contexts

    def _loaded(self, folder: Path, hash: str) -> BasePolicy:
        """The policy in a folder, if it is the one that was recorded."""
        policy = load(folder, outside=self.outside)
        require(
            required_hash(policy) == hash,
            "a policy's files must be those that were recorded",
            found=f"another policy in {folder}",
            cure="restore the folder from a copy",
            error=FileError,
        )
        return policy


def require_same_split(explore: ExploreSettings, own: ExploreSettings) -> None:
    """Refuse a plan that would read rows which the campaign keeps for its verdicts."""
    for name in ("deployments", "fractions", "reserved", "units"):
        asked, kept = getattr(explore, name), getattr(own, name)
        require(
            asked == kept,
            "a plan splits rows as the campaign does: others are kept for its verdicts",
            found=f"{name} {asked}, of the campaign {kept}",
            cure="change what the plan is for: promises, delta, objective, largest novelty",
        )


def before_planning(campaign: RecordedCampaign) -> str:
    """What must be done before a round can be planned, in a sentence; "" if one can be now.

    A plan is for a round that may still train a candidate.
    """
    k, name = campaign.round, campaign.name
    if k == 0:
        return "No logs are taken in yet."
    if k > campaign.rounds:
        return "The campaign is over: every round was served and observed."
    if campaign.deployed(k):
        then = f"plan round {k + 1}" if k < campaign.rounds else "end the campaign"
        return (
            f"Round {k} is deployed, so it can no longer be planned. To {then}, first import what "
            f"it logs: depsue campaign observe {name}."
        )
    tested = any(read.round == k for read in campaign.ledger.attempts(name))
    if tested and not campaign.settings.retries:
        return (
            f"Round {k} has its verdict, so it can no longer be planned. Deploy what may be "
            f"deployed: depsue campaign deploy {name}."
        )
    return ""


def next_command(campaign: RecordedCampaign, k: int, may_deploy: bool) -> str:
    """What to do now, a command."""
    name = campaign.name
    if k > campaign.rounds:
        return f"depsue campaign report {name}"
    if campaign.deployed(k):
        return f"depsue campaign observe {name} LOGS: what round {k} logs"
    if may_deploy:
        return f"depsue campaign deploy {name}"
    if campaign.candidates(k):
        return f"depsue campaign certify {name}"
    return f"depsue campaign train {name}"
