"""A campaign: K rounds of train, certify, deploy and observe, every step of it in the ledger.

Each step looks up in the ledger what is done and does the rest, so a step that was cut short is
simply called again. Files are written first, then the record that names them: a record never names
a file that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from depsue import codec, rng
from depsue.campaigns.files import load_candidate, save_candidate
from depsue.campaigns.observing import (
    CANNOT_PAIR,
    ObservationPreview,
    TakenIn,
    assumptions_on_items,
    assumptions_on_outside,
    assumptions_on_refuted,
    assumptions_on_versions,
    changed_items,
    fold_sizes,
    later_mapping,
    require_same_terms,
    require_untaught,
    summarised,
    taken_in_before,
    too_few,
)
from depsue.campaigns.recorded import RecordedCampaign
from depsue.campaigns.records import CandidateFacts, RoundLength
from depsue.certificates import Certificate, Registration, declared_units
from depsue.data.catalogue import Catalogue
from depsue.data.logs import LoggedData
from depsue.data.mapping import LogMapping, read_mapping
from depsue.data.reading import count_rows, open_source, read_mapped, words_on_younger
from depsue.diagnostics import require_propensities
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import ConfigError, DataError, require
from depsue.exploration.choices import Choice
from depsue.exploration.learning import Fit
from depsue.exploration.round import certified_policy, certify_round, look_ahead
from depsue.exploration.rounds import NO_DRIFT
from depsue.ledger import AttemptRecord, CandidateRecord, DeploymentRecord, ObservationRecord
from depsue.policies import BasePolicy, save
from depsue.progress import Watch, silent
from depsue.savable import required_hash

MOST_OF_THEM = 0.99
"""Share of a round's rows that must be among those which are said to add to it."""


class Campaign(RecordedCampaign):
    """One campaign, and the steps of its rounds; `depsue.campaigns.create` begins one."""

    # The steps of a round, in their order.

    def train(
        self, *, seed: int | None = None, fit: Fit | None = None, watch: Watch = silent
    ) -> CandidateRecord:
        """Learn a candidate for the round, and record it with all that is fixed beforehand.

        Args:
            seed: of its training; None derives it from the campaign's.
            fit: fits a reward model of your own to rows that may teach; it can be saved.
            watch: shows progress.
        """
        k = self._current("train")
        trained = self.candidates(k)
        if trained and seed is None:
            return trained[-1]
        self._require_no_verdict(k, "train")
        state = self.state()
        inputs = state.inputs(self.decisions(state))
        folds = inputs.folds
        within = state.settings.factor
        require_propensities(folds.learn, folds.select, logging_policy=inputs.base, within=within)
        refuted = state.refuted
        self.notes = (*too_few(folds), *assumptions_on_refuted(refuted), *state.spoken)
        if any(top.is_r_max for top in inputs.ceilings.values()):
            self.notes = (*self.notes, CANNOT_PAIR)
        of_round = rng.derive(self.settings.seed if seed is None else seed, "exploration", k)
        with rng.one_thread():
            ahead = look_ahead(inputs, state.settings, seed=of_round, fit=fit, watch=watch)
            candidate = ahead.frozen()
        declared = (
            *candidate.rules.assumptions,
            *self.files.mapping(k - 1).assumptions,
            *assumptions_on_items(self.summaries()[k - 1]),
            *assumptions_on_versions(state.newest),
            *assumptions_on_outside(self.pi0),
            *assumptions_on_refuted(refuted),
            *(f"fact: {words}" for words in state.spoken),
        )
        candidate = replace(candidate, rules=replace(candidate.rules, assumptions=declared))
        catalogue = folds.learn.catalogue
        pi0_policy = self._save(k, state.pi0, catalogue)
        certain_policy = None
        if candidate.certain is not None:
            certain_policy = self._save(k, candidate.certain, catalogue)
        facts = CandidateFacts.fixed_by(
            candidate,
            pi0_policy=pi0_policy,
            certain_policy=certain_policy,
            refuted=refuted,
            catalogue=catalogue,
        )
        folder = self.files.candidate(k, facts.hash)
        save_candidate(candidate, facts, folder, catalogue)
        return self.ledger.record_candidate(
            self.name,
            k,
            policy_hash=facts.hash,
            folder=str(folder.relative_to(self.files.folder)),
            trained_on=[seen.data_hash for seen in self.ledger.observations(self.name)],
            fixed=facts.recorded(),
            by=self.by,
        )

    def certify(self, *, watch: Watch = silent) -> AttemptRecord:
        """Put the newest candidate to the test, once; what came of it the first time, if again.

        Args:
            watch: shows progress.
        """
        k = self._current("certify")
        recorded = self.newest_candidate(k)
        done = self.attempt_of(k, recorded.policy_hash)
        if done is not None and done.state != "open":
            return done
        with self.ledger.reads(self.name, k, recorded.policy_hash, by=self.by) as reads:
            state = self.state()
            inputs = state.inputs(self.decisions(state))
            folder = self.files.candidate(k, recorded.policy_hash)
            with rng.one_thread():
                candidate = load_candidate(
                    folder, CandidateFacts.of(recorded), inputs, self.outside
                )
                explored = certify_round(
                    candidate, inputs, state.settings, reads=reads, watch=watch
                )
                if explored.certificate.passed:
                    policy = certified_policy(explored.certificate, candidate)
                    self._save(k, policy, inputs.folds.certify.catalogue)
            return reads.finish(explored.certificate)

    def deploy(
        self,
        what: str | None = None,
        *,
        decisions: int | None = None,
        until: str | None = None,
        now: datetime | None = None,
    ) -> DeploymentRecord:
        """Record that a policy serves from now on, and how long the round is to last.

        Args:
            what: "certified", "certain" or "pi0"; None takes the best by the objective.
            decisions: how many will be served in the round, whoever decides; None, without
                `until`, is what the campaign was created with, else as many as the newest logs
                have rows.
            until: instead, the date or time (ISO, UTC) at which the round ends.
            now: the time; None is the present.
        """
        k = self._current("deploy")
        allowed: dict[str, Choice] = {choice.what: choice for choice in self.choices(k)}
        require(
            bool(allowed),
            "a round has a verdict before something is deployed",
            found=f"none in round {k} of {self.name!r}",
            cure="certify first; pi0 goes on serving without any of this",
        )
        wanted = next(iter(allowed)) if what is None else what
        require(
            wanted in allowed,
            f"what may be deployed now is one of {', '.join(allowed)}",
            found=wanted,
            cure="depsue campaign status says why",
        )
        hash = self.hash_of_choice(k, allowed[wanted])
        self.policy(k, hash)  # what cannot be loaded is not deployed
        length = self._length(k, decisions, until, certified=wanted == "certified")
        length.require_ahead(datetime.now(UTC) if now is None else now)
        return self.ledger.deploy(self.name, k, hash, by=self.by, declared=length.recorded())

    def _length(
        self, k: int, decisions: int | None, until: str | None, *, certified: bool
    ) -> RoundLength:
        """How long round k is to last, as declared now; arguments as for `deploy`."""
        seen, given = self.ledger.observations(self.name)[k - 1], decisions
        rows = seen.rows + seen.rows_erased
        if decisions is None and until is None:
            decisions = self.settings.decisions or rows
        length = RoundLength(decisions, until)
        decided = self.decided(k) if certified else None
        if self.settings.explore.safety == "cumulative" and decided is not None:
            certificate = Certificate.from_json(decided[1].certificate or "")
            spread = self.settings.decisions or rows
            require(
                not certificate.spent.margins or length.decisions == spread,
                "with --safety cumulative a round serves exactly the decisions that its "
                "certificate spreads the margin or debt over",
                found=f"{length}, certified for {spread:,} decisions",
                cure=f"leave --decisions and --until out, or give --decisions {spread}; another "
                "number is given when a campaign is created",
            )
        declared = RoundLength.of(self.deployed(k))
        require(
            declared is None or (given is None and until is None) or declared == length,
            "the length of a round is declared once, when it is first deployed",
            found=f"{length}, declared was {declared}",
            cure="leave --decisions and --until out: the round lasts as it was declared",
        )
        return length

    def rollback(self, to: int = 0) -> DeploymentRecord:
        """Serve what served before, from now on: pi0, or what an earlier round deployed.

        pi0 is always allowed. What an earlier round deployed serves again only if what it was
        certified for still holds without help: its bounds reach the floor without margin, nothing
        that it rests on was refuted since, and where the sum counts there is no debt.

        Args:
            to: 0 for pi0, else the round.
        """
        k = min(self.round, self.rounds)
        if to == 0:
            newest = self.round - 1
            hash = self._save(k, self.pi0_today(newest), self.files.items(newest))
        else:
            deployments = self.deployed(to)
            require(
                bool(deployments) and to <= k,
                "a rollback goes to pi0 or to a round that deployed something",
                found=f"round {to}",
                cure="--to 0 is pi0",
            )
            hash = deployments[-1].policy_hash
            if to < self.round:  # the certificate of the round under way is for this round
                self._require_holds_alone(to, hash)
        self.policy(k, hash)  # what cannot be loaded does not serve
        declared = RoundLength.of(self.deployed(k))  # of the round, whoever serves in it
        if declared is None and self.round <= self.rounds:
            declared = self._length(k, None, None, certified=False)
        return self.ledger.deploy(
            self.name,
            k,
            hash,
            "rollback",
            by=self.by,
            declared=None if declared is None else declared.recorded(),
        )

    def preview_observation(
        self,
        source: str | Path | Any,
        *,
        mapping: LogMapping | str | Path | None = None,
        items: str | Path | Any | None = None,
        id: str | None = None,
        now: datetime | None = None,
        decisions: int | None = None,
        by_pi0: int | None = None,
        excused: int = 0,
        left_out: Sequence[str] = (),
    ) -> ObservationPreview:
        """What `observe` would take in, or why it would refuse; nothing is recorded.

        Args:
            source, mapping, items, id, now, decisions, by_pi0, excused: as for `observe`.
            left_out: what the source leaves out already, in words.
        """
        source = self.files.kept(self.round, source)
        taken = self._taken_in(source, mapping, items, id, now, decisions, by_pi0, excused)
        return replace(taken.preview, left_out=(*left_out, *taken.preview.left_out))

    def observe(
        self,
        source: str | Path | Any,
        *,
        mapping: LogMapping | str | Path | None = None,
        items: str | Path | Any | None = None,
        id: str | None = None,
        now: datetime | None = None,
        decisions: int | None = None,
        by_pi0: int | None = None,
        excused: int = 0,
    ) -> ObservationRecord:
        """Take in what a round logged; until the next `train`, again with more rows.

        `preview_observation` shows what that would be. Rows are added by observing all rows of the
        round together; the round then counts as one that was ended by choice.

        Args:
            source: a file, a folder or a pattern; or a frame, which is kept with the campaign.
            mapping: which column is what, or the TOML file that says so; None as before.
            items: from the next round on, a file or a frame, if items arrived or were withdrawn.
            id: its column of ids.
            now: the time; rows younger than the reward window are left out. None is the present.
            decisions: that were served in the round, whoever decided: fallbacks, rollbacks and the
                holdout included; None is one for each row.
            by_pi0: of those without a row, how many pi0 took; None is none.
            excused: of those without a row, how many lack one for a reason that no reward has to do
                with, such as an outage. With others missing, the number of rows was not fixed, and
                the round counts as one that was ended by choice.
        """
        source = self.files.kept(self.round, source)
        taken = self._taken_in(source, mapping, items, id, now, decisions, by_pi0, excused)
        self.notes = taken.preview.left_out
        if taken.seen is not None:
            return self._observed_before(taken.seen, source)
        k, logs, place = taken.preview.round, taken.logs, str(Path(source).absolute())
        explore = self.settings.explore

        def summary(registration: Registration) -> dict[str, Any]:
            own = summarised(
                taken.drawn,
                explore.promises,
                taken.policy,
                taken.served,
                explore.units,
                registration,
            )
            served = taken.preview.decisions
            values: dict[str, Any] = codec.plain(
                replace(
                    own,
                    arrived=taken.arrived,
                    withdrawn=taken.withdrawn,
                    decisions=None if served == own.rows else served,
                    by_pi0=taken.by_pi0,
                    holdout=taken.mapping.holdout,
                    ended=taken.preview.ended,
                )
            )
            return values

        staged = self.files.stage(k, logs.catalogue, taken.mapping)
        record = self.ledger.observe_more if taken.preview.before else self.ledger.observe
        observed = record(
            self.name,
            k,
            data_hash=logs.hash,
            rows=len(logs),
            source=place,
            summary=summary,
            by=self.by,
            sketch=logs.sketch,
            fractions=explore.fractions,
            files=staged,
        )
        self.files.settle(k, staged)
        if taken.preview.before and self.files.place(k) is not None:
            self.files.save_place(k, place)
        return observed

    def _taken_in(
        self,
        source: str | Path,
        mapping: LogMapping | str | Path | None,
        items: str | Path | Any | None,
        id: str | None,
        now: datetime | None,
        decisions: int | None,
        by_pi0: int | None,
        excused: int,
    ) -> TakenIn:
        """All that an observation would record; arguments as for `observe`."""
        k, opened = self.round, open_source(source)
        if mapping is None:
            earlier_mapping = self.files.mapping(k - 1)
            mapping = later_mapping(earlier_mapping, opened.names, self.pi0.rests_on_choice)
        elif not isinstance(mapping, LogMapping):
            mapping = read_mapping(mapping)
        require(
            mapping.by_pi0 is not None or not self.pi0.rests_on_choice,
            "rows of a pi0 that is known by what it chose say who drew them",
            found="no column by_pi0",
            cure="log pi0's probability where its own choice was shown, 0 where the policy drew",
        )
        catalogue = self.files.items(k - 1)
        mapping = mapping.taken_in(now)
        logs = read_mapped(opened, mapping, catalogue, k)
        left_out = words_on_younger(opened, mapping)
        younger = count_rows(opened, replace(mapping, until=None)) - len(logs)
        for seen in self.ledger.observations(self.name):
            until = self.files.mapping(seen.round).until
            gone = self.erased_units(seen.round, logs)
            rows = read_mapped(opened, mapping, catalogue, k, without=gone) if gone else logs
            if taken_in_before(seen, rows, opened, mapping, until, gone):
                known = f"already observed as round {seen.round}"
                preview = ObservationPreview(seen.round, seen.rows, left_out=left_out, known=known)
                return TakenIn(preview, mapping, logs, logs, self.pi0, seen=seen)
        adds = self._adds_to(logs)
        before = 0
        if adds is not None:
            k, before = adds.round, adds.rows
            if gone := self.erased_units(k, logs):  # what was erased does not come back
                logs = read_mapped(opened, mapping, catalogue, k, without=gone)
            logs = replace(logs, round=np.full(len(logs), k, dtype=np.int16))
        else:
            self._current("observe")
            if self.candidates(k) and not self.deployed(k):
                require_untaught(k, self.ledger.overlap(self.name, k - 1, logs.sketch))
            addable = k > 1 and not self.candidates(k)
            require(
                bool(self.deployed(k)),
                "a round is observed after something was deployed in it",
                found=f"no deployment in round {k} of campaign {self.name!r}",
                cure="train, certify and deploy first; where pi0 went on serving: rollback"
                + (f"; to add rows to round {k - 1}, give all of its rows together" * addable),
            )
        explore = self.settings.explore
        require_same_terms(mapping, self.files.mapping(0))
        declared_units(logs, explore.units)
        served, policy = self._drawn_by(k, logs, mapping.holdout)
        summaries = self.summaries()
        earlier = summaries[k] if adds is not None else None
        arrived = () if earlier is None else earlier.arrived
        withdrawn = summaries[min(k, len(summaries) - 1)].withdrawn
        drawn = logs
        if items is not None:
            change = changed_items(catalogue, items, id)
            logs = replace(logs, catalogue=change.catalogue)
            arrived, withdrawn = change.arrived, change.withdrawn
        total = len(logs) + younger
        if earlier is not None:
            total = max(total, earlier.decisions or 0)
            by_pi0 = earlier.by_pi0 if by_pi0 is None else by_pi0
        total = total if decisions is None else decisions
        by_pi0 = by_pi0 or 0
        require(
            total >= len(logs) + by_pi0,
            "there are at least as many decisions as rows and decisions of pi0 without a row",
            found=f"{total:,} decisions, {len(logs):,} rows and {by_pi0:,} of pi0 without a row",
            cure="--decisions counts all that was served in the round, whoever decided",
        )
        length = RoundLength.of(self.deployed(k)) if k else None
        if adds is not None:
            ended = "rows were added after it was observed"
        elif length is None:
            ended = "no length was declared when it was deployed"
        else:
            ended = length.broken_by(total, total - len(logs) - excused, logs.time)
        declared = total if length is None or length.decisions is None else length.decisions
        times = None if logs.time is None or not len(logs.time) else logs.time
        folds = None
        if k < self.rounds:
            reserve = explore.reserved if 0 < k < self.rounds - 1 else 0.0
            folds = fold_sizes(logs, explore.fractions, explore.deployments, reserve)
        preview = ObservationPreview(
            round=k,
            rows=len(logs),
            before=before,
            first=None if times is None else str(times.min()),
            last=None if times is None else str(times.max()),
            left_out=left_out,
            length=length,
            decisions=total,
            beyond=max(total - declared, 0),
            missing=max(declared - total, 0),
            ended=ended,
            folds=folds,
            holdout=mapping.holdout,
        )
        return TakenIn(
            preview, mapping, logs, drawn, policy, served, arrived, withdrawn, by_pi0=by_pi0
        )

    def _adds_to(self, logs: LoggedData) -> ObservationRecord | None:
        """The newest observation, if these are its rows and more, and nothing was learned yet."""
        k = self.round
        if self.candidates(k) or self.deployed(k):
            return None
        newest = self.ledger.observations(self.name)[-1]
        if newest.round == 0 or len(logs) <= newest.rows:  # the first logs are declared once
            return None
        shared = self.ledger.overlap(self.name, newest.round, logs.sketch).share
        return newest if shared > MOST_OF_THEM else None

    def _require_holds_alone(self, k: int, hash: str) -> None:
        """Refuse a policy of round k whose promise needs help by now, or is refuted."""
        made_in, choice = self.made_in(k, hash)
        decided = self.decided(made_in) if made_in else None
        if choice.what == "pi0" or decided is None:
            return
        refuted, debts, reasons = self.refuted(), {}, []
        explore = self.settings.explore
        if explore.safety == "cumulative" or explore.no_drift or explore.assume:
            try:
                state = self.state()
                credits = state.inputs(self.decisions(state)).credits
            except ConfigError as problem:  # begun under older rules, say
                reasons.append(f"what its rounds earned cannot be counted: {problem.found}")
            else:
                refuted |= state.refuted
                debts = {name: credit.value for name, credit in credits.items() if credit.value < 0}
        if choice.what == "certified":
            certificate = Certificate.from_json(decided[1].certificate or "")
            if not all(verdict.alone for verdict in certificate.verdicts):
                reasons.append("its certificate counts on the margin that was there then")
            rests = certificate.spent.ceilings or certificate.strata
            if NO_DRIFT in refuted and rests:
                reasons.append("it rests on no_drift, which was refuted")
            if certificate.assumed is not None and str(certificate.assumed.rung) in refuted:
                reasons.append(f"it rests on {certificate.assumed.rung}, which was refuted")
        for name, value in debts.items():
            reasons.append(f"the account shows a debt ({name}: {value:.4g} per decision to come)")
        require(
            not reasons,
            "a policy of an earlier round serves again only if its promise still holds without "
            "help",
            found=f"round {k}: {'; '.join(reasons)}",
            cure="--to 0 serves pi0, which is always allowed",
        )

    def _observed_before(self, seen: ObservationRecord, source: str | Path) -> ObservationRecord:
        """Rows that were observed before: once, and from now on at this place."""
        place = str(Path(source).absolute())
        if place != self.source(seen):
            self.files.save_place(seen.round, place)
            note = f"already observed as round {seen.round}; from now on they are read at {place}"
        else:
            k = self.round
            require(
                seen.round == k - 1 and not self.deployed(k),
                f"round {k} waits for rows of its own",
                found=f"{source} was observed as round {seen.round} by {seen.by}",
                cure="give what was logged since the last deployment",
            )
            note = f"already observed as round {seen.round}; nothing was changed"
        self.notes = (note,)
        return seen

    def _drawn_by(self, k: int, logs: LoggedData, holdout: float) -> tuple[str, BasePolicy]:
        """The deployment that drew these rows: the newest of the round that could.

        Returns its hash, and what drew the rows: it, or its mixture with the holdout on pi0.
        """
        refusal: DataError | None = None
        for deployment in reversed(self.deployed(k)):
            policy = self.drawing(k, deployment.policy_hash, holdout, logs.catalogue)
            try:
                require_drawn_by(policy, logs)
                return deployment.policy_hash, policy
            except DataError as problem:
                refusal = refusal or problem
        raise refusal or RuntimeError("the round has a deployment")

    def _save(self, k: int, policy: object, catalogue: Catalogue) -> str:
        """Save a policy that may be served; its hash."""
        if not isinstance(policy, BasePolicy):
            raise ConfigError("a policy of a campaign must be savable", found=type(policy).__name__)
        hash = required_hash(policy)
        if policy is not self.pi0:
            save(policy, self.files.policy(k, hash), catalogue=catalogue)
        return hash

    def _current(self, step: str) -> int:
        """The round under way; refused after the last one."""
        k = self.round
        require(
            k <= self.rounds,
            f"a campaign of {self.rounds} rounds has {self.rounds} deployments",
            found=f"{step} after the last round was observed",
            cure="begin a new campaign with what was learned: its last policy can be the new pi0",
        )
        return k

    def _require_no_verdict(self, k: int, step: str) -> None:
        attempts = [read for read in self.ledger.attempts(self.name) if read.round == k]
        require(
            not attempts or self.settings.retries,
            "once a verdict has read the certifying rows, another candidate would be a second try",
            found=f"{step} again in round {k}, after {attempts[0].by if attempts else ''} "
            "certified",
            cure="deploy what may be deployed; retries are declared when a campaign is created",
        )
