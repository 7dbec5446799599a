"""What was served is the logs of the next round."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import polars as pl
import pytest
from tests.serving.asgi import batch, caller, rewarded
from tests.serving.conftest import Clock, Serve

from depsue.campaigns import Campaign, story_of
from depsue.campaigns.dry_runs import recompute
from depsue.campaigns.records import RoundSummary
from depsue.certificates import Certificate
from depsue.errors import FileError
from depsue.estimators.weights import novelty_on
from depsue.serving.exporting import export_served
from depsue.serving.schema import Decision
from depsue.serving.settings import JOURNAL, STORE, declared
from depsue.serving.store import Store


def test_what_was_served_is_the_next_rounds_logs(
    serve: Serve, home: Path, campaign: Campaign, clock: Clock
) -> None:
    service = serve(wait=3.0)
    call = caller(service, home)
    made = batch(call, 1500)
    rewarded(call, made, lambda one: 0.4)
    rewarded(call, made, lambda one: 0.4)  # all of it twice
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    clock.advance(3.1)
    late = call.post("/v1/reward", {"decision": made[0]["decision"], "reward": 1.0})
    assert late.status == 200  # and does not count
    found = export_served(campaign, None)
    policy = [one for one in made if one["decided_by"] == "policy"]
    held = len(made) - len(policy)
    assert (found.rows, found.holdout, found.share) == (1500, 0, 0.05) and 30 < held < 130
    assert "1,500 decisions of the policy and of its holdout (0.05 of them on pi0)" in str(found)
    preview = campaign.preview_observation(str(found.path), mapping=found.mapping)
    assert "rows of the holdout on pi0 count too: 0.05 of the decisions" in preview.lines()
    seen = campaign.observe(str(found.path), mapping=found.mapping)
    summary = RoundSummary.of(seen)
    assert (seen.rows, summary.holdout, summary.decisions) == (1500, 0.05, None)
    written = pl.read_parquet(found.path)
    assert written["decided_by"].to_list() == [one["decided_by"] for one in made]
    mixed, logs = campaign.state().base, campaign.logs(1)
    own = np.exp(mixed.log_prob(logs.requests, logs.action, logs.context))
    np.testing.assert_allclose(logs.propensity, own, rtol=1e-3)
    deployed = campaign.policy(1, summary.served)
    assert summary.novelty == pytest.approx(0.95 * novelty_on(deployed, logs))
    assert campaign.ledger.registration(campaign.name, 1).kind == "decision"
    rng = np.random.default_rng(0)
    due = {one["decision"] for one in made if rng.random() < 0.4}
    mean = sum(one["decision"] in due for one in made) / len(made)
    assert campaign.logs(1).mean_reward() == pytest.approx(mean)
    folds = campaign.state().inputs(1500).folds
    readable = np.concatenate([folds.learn.reward, folds.select.reward])  # no page shows the others
    assert RoundSummary.of(seen).promises["reward"].mean == pytest.approx(readable.mean())
    assert story_of(campaign).round == 2


def test_of_a_holdout_whose_share_grew_a_lot_stays_out(
    serve: Serve, home: Path, campaign: Campaign, clock: Clock
) -> None:
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    made = []
    for holdout in (0.05, 0.2):
        service = serve(wait=3.0, holdout=holdout)
        made += batch(caller(service, home), 600)
        service.close()
    clock.advance(3.1)
    found = export_served(campaign, None)
    policy = sum(one["decided_by"] == "policy" for one in made)
    assert (found.rows, found.share) == (1200 - found.holdout, 0.05)
    assert 0 < found.holdout < len(made) - policy
    assert "of the holdout on pi0, whose share, or whose policy, changed" in str(found)
    seen = campaign.observe(
        str(found.path),
        mapping=found.mapping,
        decisions=found.decisions,
        by_pi0=found.holdout + found.fallback,
    )
    summary = RoundSummary.of(seen)
    assert (summary.holdout, summary.decisions) == (0.05, 1200)
    assert summary.by_pi0 == found.holdout


def test_a_round_in_which_exploration_was_stopped_was_ended_by_choice(
    serve: Serve, home: Path, campaign: Campaign, clock: Clock
) -> None:
    """Whoever stops the policy when its mean looks good chooses how many rows it has."""
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    service = serve(wait=3.0, holdout=0.0)
    call = caller(service, home)
    batch(call, 700)
    service.stop_policy("a test", "ana")
    batch(call, 50)
    clock.advance(3.1)
    found = export_served(campaign, None)
    assert (found.rows, found.fallback, found.cut, found.excused) == (700, 50, True, 0)
    seen = campaign.preview_observation(
        str(found.path),
        mapping=found.mapping,
        decisions=found.decisions,
        by_pi0=found.fallback,
        excused=found.excused,
    )
    assert "750 decisions served" in seen.ended
    assert replace(found, cut=False).excused == 50  # had it been an outage


def test_the_next_certificate_says_whose_rows_it_rests_on(
    serve: Serve, home: Path, campaign: Campaign, clock: Clock
) -> None:
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    service = serve(wait=3.0)
    call = caller(service, home)
    for _ in range(3):
        rewarded(call, batch(call, 1000), lambda one: 0.4)
    clock.advance(3.1)
    service.close()
    found = export_served(campaign, None)
    campaign.observe(str(found.path), mapping=found.mapping)
    campaign.train()
    attempt = campaign.certify()
    certificate = Certificate.from_json(attempt.certificate or "")
    words = "the rows are of the served policy and of its holdout together"
    assert any(words in assumption for assumption in certificate.assumptions)
    assert recompute(campaign, 2, attempt.attempt).equal


def test_export_waits_for_the_journal(campaign: Campaign, serve: Serve, home: Path) -> None:
    service = serve(wait=0.0)
    batch(caller(service, home), 5)
    service.close()  # nobody replays it
    journal = campaign.files.folder / JOURNAL
    journal.mkdir()
    (journal / "00000001.jsonl").write_bytes(b"a line\n")
    with pytest.raises(FileError, match="journal is replayed"):
        export_served(campaign, None)


def test_decisions_of_a_policy_that_was_replaced_are_not_pi0s(
    campaign: Campaign, serve: Serve, home: Path
) -> None:
    """The margin charges them at their worst; pi0's own count as what pi0 earns."""
    service = serve(wait=0.0, holdout=0.3)
    call = caller(service, home)
    before = Counter(each["decided_by"] for each in batch(call, 300))
    campaign.rollback()
    service.turn()
    assert service.served.is_pi0
    batch(call, 700)
    service.stop_policy("a test", "ana")
    service.close()
    declared(campaign.files.folder, {"wait": 0.0}, begun=False)
    written = export_served(campaign, None)
    assert (written.rows, written.replaced) == (700, before["policy"])
    assert (written.holdout, written.fallback) == (before["holdout"], 0)
    assert written.decisions == 1000
    assert f"{before['policy']} of a policy that was replaced" in str(written)
    novelty = max(choice.novelty for choice in campaign.choices(1))
    campaign.observe(
        str(written.path),
        mapping=written.mapping,
        decisions=written.decisions,
        by_pi0=written.holdout + written.fallback,
    )
    (counted,) = campaign.state().served
    assert (len(counted.logs), counted.unobserved, counted.by_pi0) == (700, 300, before["holdout"])
    assert 0 < counted.pi0_kept <= 1 - novelty  # as little of pi0 as the replaced policy kept


def test_damaged_lines_of_the_journal_are_charged_as_decisions_without_a_row(
    campaign: Campaign, serve: Serve, home: Path
) -> None:
    service = serve(wait=0.0, holdout=0.0)
    batch(caller(service, home), 20)
    service.close()
    declared(campaign.files.folder, {"wait": 0.0}, begun=False)
    journal = campaign.files.folder / JOURNAL
    journal.mkdir()
    lines = (
        b"what it held cannot be told",
        b'00000000 {"decisions":[{"id":"ab","round":1,"propensity":0.5}]}',
        b'00000000 {"decisions":[{"id":"ab","round":7,"propensity":0.5}]}',  # of another round
        b'{"decisions":[{"round":1,"propensity":0.5},{"round":1,"propensity":0.25,}]}',
        b'00000000 {"rewards":[{"decision":"ab","value":1.0,"received":7.0}]}',
    )
    (journal / "00000001.damaged").write_bytes(b"\n".join([*lines, b""]))
    written = export_served(campaign, None)
    assert (written.rows, written.damaged, written.decisions) == (20, 5, 25)
    assert "5 that may stand in damaged lines of the journal" in written.left_out


def test_a_twin_is_no_row_and_is_charged_as_a_decision_without_one(
    campaign: Campaign, serve: Serve, home: Path
) -> None:
    service = serve(wait=0.0, holdout=0.0)
    batch(caller(service, home), 20)
    first = service.reader.read()[0][0]
    service.close()
    fields = [field.name for field in msgspec.structs.fields(Decision)]
    twin = Decision(**{name: getattr(first, name) for name in fields} | {"key": "k"})
    store = Store(campaign.files.folder / STORE, "spring", writing=True)
    store.open()
    both = [msgspec.structs.replace(twin, id=f"{k:032x}") for k in range(2)]
    assert store.replay(both, (), []) == 1
    store.close()
    declared(campaign.files.folder, {"wait": 0.0}, begun=False)
    written = export_served(campaign, None)
    assert (written.rows, written.twins, written.decisions) == (21, 1, 22)
    assert "1 of keys that were decided on both sides of an outage" in written.left_out
