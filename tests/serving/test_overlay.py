"""Requests that bring candidates, and what is known of pi0 on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.serving.asgi import Caller
from tests.serving.conftest import Clock, seeded_chance
from tests.serving.model import SERVED, SmallService, request, stored

from depsue.campaigns import Campaign, create
from depsue.data.logs import joined
from depsue.data.mapping import LogMapping
from depsue.data.requests import Candidates
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import DataError
from depsue.policies import BroughtPolicy, ChosenPolicy, Mixture, Uniform
from depsue.promises import Floor, Promise
from depsue.serving.access import Access
from depsue.serving.app import App
from depsue.serving.brought import packed, packed_shares, unpacked
from depsue.serving.deciding import check_request
from depsue.serving.exporting import export_served
from depsue.serving.messages import Decide, DecisionReply
from depsue.serving.monitor import MonitorEpoch, MonitorRun
from depsue.serving.served import ARRIVED, NONE_SHOWN, NOT_COVERED
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings, declared

NEW = np.array([False, False, True, True])
BROUGHT = replace(
    SERVED,
    policy=Mixture([BroughtPolicy(4), Uniform(np.ones(4, dtype=bool))], [0.6, 0.4]),
    pi0=BroughtPolicy(4),
    brings=True,
)
THREE: dict[str, Any] = {"candidates": ["i2", "i0", "i1"], "probabilities": [0.0, 0.75, 0.25]}


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., SmallService]:
    def made(served: Any = BROUGHT, **settings: Any) -> SmallService:
        service = SmallService(tmp_path, tmp_path / "store.db", **settings)
        service.served = served
        return service

    return made


def replies(service: SmallService, *asked: Decide) -> list[DecisionReply]:
    """Decisions of requests, each answered."""
    answers = service.ask(*asked)
    for answer in answers:
        assert isinstance(answer, DecisionReply), answer
    return answers


def follows(shown: list[Any], p: dict[Any, float]) -> bool:
    """Whether items were shown as often as their probabilities say."""
    counts = Counter(shown)
    assert set(counts) <= {item for item, share in p.items() if share > 0}
    seen = np.array([counts[item] for item, share in p.items() if share > 0])
    expected = np.array([share for share in p.values() if share > 0]) * len(shown)
    return float(stats.chisquare(seen, expected).pvalue) > 1e-4


@pytest.mark.parametrize("n_actions", [200, 60_000, 1_000_000, 1 << 25])
def test_what_is_packed_is_read_back(n_actions: int) -> None:
    rng = np.random.default_rng(0)
    sizes = [1, 5, 40]
    lists = [rng.choice(n_actions, size, replace=False) for size in sizes]
    lists[1][0] = n_actions - 1
    shares = [rng.dirichlet(np.ones(size)).astype(np.float32) for size in sizes]
    sets = Candidates.of_lists(lists, shares)
    again = unpacked(packed(sets, n_actions), packed_shares(sets))
    assert np.array_equal(again.items, sets.items) and np.array_equal(again.starts, sets.starts)
    assert again.pi0 is not None and sets.pi0 is not None
    np.testing.assert_allclose(again.pi0, sets.pi0, rtol=1e-6)
    assert unpacked(["[0,4]"]).items.tolist() == [0, 4]  # as older services wrote it


def test_decisions_follow_the_policy_over_pi0_as_it_is_brought(
    small: Callable[..., SmallService], tmp_path: Path
) -> None:
    service = small(holdout=0.25)
    made = [each for k in range(20) for each in replies(
        service, *(request(f"{k}-{j}", **THREE) for j in range(100)))]  # fmt: skip
    own: dict[Any, float] = {"i0": 0.6 * 0.75 + 0.4 / 3, "i1": 0.6 * 0.25 + 0.4 / 3, "i2": 0.4 / 3}
    base: dict[Any, float] = {"i0": 0.75, "i1": 0.25, "i2": 0.0}
    for who, p in (("policy", own), ("holdout", base)):
        mine = [each for each in made if each.decided_by == who]
        assert len(mine) > 300 and follows([each.action for each in mine], p)
        assert all(each.propensity == pytest.approx(p[each.action]) for each in mine)
    rows = [dict(row) for row in stored(tmp_path / "store.db").values()]
    for row in rows:
        item = f"i{row['action']}"
        assert row["p_policy"] == pytest.approx(own[item])
        assert row["p_pi0"] == pytest.approx(base[item])
    sets = unpacked([row["candidates"] for row in rows], [row["pi0"] for row in rows])
    assert sets.items.tolist() == [0, 1, 2] * len(rows)
    assert sets.pi0 is not None and sets.pi0.tolist() == [0.75, 0.25, 0.0] * len(rows)
    # of the holdout it is known what the policy would have shown
    held = [row for row in rows if row["decided_by"] == "holdout"]
    assert follows([f"i{row['would']}" for row in held], own)
    assert all(row["p_would"] == pytest.approx(own[f"i{row['would']}"]) for row in held)
    assert {row["would"] for row in rows if row["decided_by"] == "policy"} == {None}


def test_a_retry_is_known_by_its_key_whatever_it_brings(
    small: Callable[..., SmallService],
) -> None:
    service = small()
    (first,) = replies(service, request("k", **THREE, version="may"))
    other: dict[str, Any] = {"candidates": ["i3", "i1"], "probabilities": [0.5, 0.5]}
    assert replies(service, request("k", **other, version="june")) == [first]
    assert service.ask(request("k", candidates=["i1"])) == [first]  # not even all that it must
    (refused,) = service.ask(request("new", candidates=["i1"]))
    assert isinstance(refused, DataError) and "must bring pi0's probabilities" in refused.rule


def test_while_the_store_is_gone_pi0_decides_as_the_caller_brings_it(
    small: Callable[..., SmallService], tmp_path: Path
) -> None:
    service = small()
    service.link.up = False
    made = replies(service, *(request(f"k{j}", **THREE) for j in range(400)))
    assert {each.decided_by for each in made} == {"pi0"}
    assert follows([each.action for each in made], {"i0": 0.75, "i1": 0.25})
    own = replies(service, request("own", **THREE, chosen="i1", chosen_probability=0.25))[0]
    assert (own.action, own.propensity, own.decided_by) == ("i1", 0.25, "pi0")
    service.settle()
    row = stored(tmp_path / "store.db")[own.decision]
    assert (row["chosen"], row["p_chosen"], row["p_pi0"]) == (1, 0.25, 0.25)


def test_where_pi0_shows_nothing_the_certificate_is_silent(
    small: Callable[..., SmallService],
) -> None:
    service = small(SERVED)
    made = replies(service, *(request(f"k{j}", candidates=["i2", "i3"]) for j in range(300)))
    assert {each.decided_by for each in made} == {"pi0"}
    assert follows([each.action for each in made], {"i2": 0.5, "i3": 0.5})
    assert {each.why for each in service.writer.recent.values()} == {NONE_SHOWN}


def test_candidates_that_the_campaign_does_not_know_cannot_be_shown(
    small: Callable[..., SmallService], tmp_path: Path
) -> None:
    service = small(holdout=0.25)
    four: dict[str, Any] = {"candidates": ["i2", "late", "i0", "i1"]}
    told = [request(f"a{j}", **four, probabilities=[0, 0, 0.75, 0.25]) for j in range(200)]
    # pi0 would not show it: the decision counts as if it had not been brought
    assert {each.decided_by for each in replies(service, *told)} == {"policy", "holdout"}
    for row in stored(tmp_path / "store.db").values():
        assert unpacked([row["candidates"]]).items.tolist() == [0, 1, 2]
    # pi0 would show it: pi0 decides among the others, and no certificate covers that
    lost = [request(f"b{j}", **four, probabilities=[0, 0.2, 0.6, 0.2]) for j in range(400)]
    both = replies(service, *told[:3], *lost)
    made = both[3:]
    assert {each.decided_by for each in made} == {"pi0"}
    assert follows([each.action for each in made], {"i0": 0.75, "i1": 0.25})
    rows = stored(tmp_path / "store.db")
    assert {rows[each.decision]["why"] for each in made} == {ARRIVED} <= set(NOT_COVERED)
    gone = request("c", candidates=["late", "i1"], probabilities=[1, 0])
    assert replies(service, gone)[0].action == "i1"


def test_decisions_of_one_batch_have_an_order_of_time(
    small: Callable[..., SmallService], tmp_path: Path
) -> None:
    service = small()
    made = replies(service, *(request(f"k{j}", **THREE) for j in range(50)))
    rows = stored(tmp_path / "store.db")
    times = [rows[each.decision]["at"] for each in made]
    assert all(a < b for a, b in zip(times, times[1:], strict=False))


@pytest.mark.parametrize(
    ("served", "more", "rule", "found"),
    [
        (BROUGHT, {}, "must bring its candidates", "none"),
        (BROUGHT, {"candidates": ["i0"]}, "must bring pi0's probabilities", "none"),
        (BROUGHT, {"candidates": ["i9"]}, "must be items of the campaign", "1 unknown"),
        (BROUGHT, {**THREE, "probabilities": [0.5, 0.25, 0.25]}, "new item must be 0", "0.5 of"),
        (BROUGHT, {**THREE, "probabilities": [1.0]}, "a distribution", "1 for 3 candidates"),
        (BROUGHT, {**THREE, "probabilities": [0.5, 0.25, 0.1]}, "a distribution", "sum of 0.85"),
        (BROUGHT, {"candidates": ["i0", "i0"], "probabilities": [0.5, 0.5]}, "a distribution",
         "a candidate twice"),
        (BROUGHT, {**THREE, "chosen": "i1"}, "an item with its probability", "an item alone"),
        (BROUGHT, {**THREE, "chosen_probability": 0.5}, "an item with its", "a probability alone"),
        (BROUGHT, {**THREE, "chosen": "i9", "chosen_probability": 0.5}, "an item of the", "i9"),
        (BROUGHT, {**THREE, "chosen": "i3", "chosen_probability": 0.5}, "one of the candidates",
         "none of 3"),
        (BROUGHT, {"candidates": ["i0"] * 4, "probabilities": [0.25] * 4}, "3 candidates at most",
         "4"),
        (SERVED, {"probabilities": [1.0]}, "those of the candidates", "no candidates"),
    ],
)  # fmt: skip
def test_what_cannot_be_decided_by_is_refused_with_its_cure(
    served: Any, more: dict[str, Any], rule: str, found: str
) -> None:
    with pytest.raises(DataError) as caught:
        check_request(request("k", **more), served, 3)
    assert rule in caught.value.rule and found in caught.value.found and caught.value.cure


CHOSEN = replace(
    SERVED,
    policy=Mixture([ChosenPolicy(4), Uniform(NEW)], [0.6, 0.4]),
    pi0=ChosenPolicy(4),
    brings=True,
)


def asked_by_a_ranker(service: SmallService, count: int) -> list[DecisionReply]:
    """Decisions of requests whose caller draws i0 with 0.75, else i1, by itself."""
    rng, made = np.random.default_rng(1), []
    for k in range(count // 100):
        asked = []
        for j in range(100):
            own = rng.random() < 0.75
            asked.append(
                request(
                    f"{k}-{j}",
                    candidates=["i3", "i1", "i0", "i2"],
                    chosen="i0" if own else "i1",
                    chosen_probability=0.75 if own else 0.25,
                )
            )
        made += replies(service, *asked)
    return made


def test_pi0s_own_choice_is_shown_with_its_share_and_else_g_draws(
    small: Callable[..., SmallService], tmp_path: Path
) -> None:
    service = small(CHOSEN, holdout=0.25)
    made = asked_by_a_ranker(service, 3000)
    own = {"i0": 0.6 * 0.75, "i1": 0.6 * 0.25, "i2": 0.2, "i3": 0.2}
    for who, p in (("policy", own), ("holdout", {"i0": 0.75, "i1": 0.25})):
        mine = [each for each in made if each.decided_by == who]
        assert len(mine) > 500 and follows([each.action for each in mine], p)
        assert all(each.propensity == pytest.approx(p[str(each.action)]) for each in mine)
    for row in stored(tmp_path / "store.db").values():
        by_pi0 = row["action"] < 2
        assert row["p_pi0"] == (row["p_chosen"] if by_pi0 else 0.0)
        expected = 0.6 * row["p_chosen"] if by_pi0 else 0.2
        assert row["p_policy"] == pytest.approx(expected)
        assert (row["would"] is None) == (row["decided_by"] == "policy")
    service.stopped = "a test"
    (stopped,) = replies(service, request("s", candidates=["i2", "i1"], chosen="i1",
                                          chosen_probability=0.3))  # fmt: skip
    assert (stopped.action, stopped.propensity, stopped.decided_by) == ("i1", 0.3, "pi0")
    (refused,) = service.ask(request("none", candidates=["i2", "i1"]))
    assert isinstance(refused, DataError) and "what pi0 chose" in refused.rule


def test_where_g_shows_none_of_the_candidates_pi0_decides(
    small: Callable[..., SmallService],
) -> None:
    ask: dict[str, Any] = {"candidates": ["i0", "i1"], "chosen": "i1", "chosen_probability": 0.25}
    made = replies(small(CHOSEN), *(request(f"k{j}", **ask) for j in range(50)))
    assert {(each.action, each.propensity) for each in made} == {("i1", 0.25)}
    brought = replace(BROUGHT, policy=Mixture([BroughtPolicy(4), Uniform(NEW)], [0.6, 0.4]))
    ask = {"candidates": ["i0", "i1"], "probabilities": [0.75, 0.25]}
    made = replies(small(brought), *(request(f"m{j}", **ask) for j in range(300)))
    assert follows([each.action for each in made], {"i0": 0.75, "i1": 0.25})
    assert {each.propensity for each in made} == {0.75, 0.25}


@pytest.mark.parametrize("served", [BROUGHT, CHOSEN])
def test_the_monitor_recomputes_what_was_drawn(
    served: Any, small: Callable[..., SmallService], tmp_path: Path
) -> None:
    service = small(served, holdout=0.25)
    if served is CHOSEN:
        asked_by_a_ranker(service, 1000)
    else:
        replies(service, *(request(f"k{j}", **THREE) for j in range(1000)))
    settings = ServingSettings(wait=0.0, holdout=0.25)
    run = MonitorRun(MonitorEpoch(served, 1, 0), settings, (Promise(Floor(0.9)),), 1)
    while run.step(service.store, 200.0):
        pass
    (words,) = [part for part in run.evidence.parts if part.name == "propensities"]
    assert run.evidence.n == 1000 and "another probability" not in words.words
    assert not words.doubtful and run.unjudged == 0
    wrong = MonitorRun(MonitorEpoch(replace(served, policy=Uniform(NEW | True) if served is BROUGHT
        else Mixture([ChosenPolicy(4), Uniform(NEW)], [0.5, 0.5])), 1, 0), settings,
        (Promise(Floor(0.9)),), 1)  # fmt: skip
    while wrong.step(service.store, 200.0):
        pass
    assert wrong.grave


def a_campaign(folder: Path) -> Campaign:
    """12 known items and 4 new ones; each request brings 4 and 2, and pi0's probabilities."""
    rng, n = np.random.default_rng(0), 4000
    ids, taste = [f"i{k:02}" for k in range(16)], rng.normal(size=(16, 2))
    x = rng.normal(size=(n, 2)).round(3)
    sets = [np.sort(np.concatenate([rng.choice(12, 4, replace=False),
                                    rng.choice([12, 13, 14, 15], 2, replace=False)]))
            for _ in range(n)]  # fmt: skip
    score = [
        np.where(c < 12, np.exp(0.5 * taste[c] @ row), 0.0) for c, row in zip(sets, x, strict=True)
    ]
    shares = [s / s.sum() for s in score]
    at = [int(rng.choice(6, p=p)) for p in shares]
    action = np.array([c[k] for c, k in zip(sets, at, strict=True)])
    pl.DataFrame(
        {
            "x0": x[:, 0],
            "x1": x[:, 1],
            "shown": [ids[a] for a in action],
            "click": (rng.random(n) < 0.5).astype(float),
            "p": [p[k] for p, k in zip(shares, at, strict=True)],
            "list": [[ids[a] for a in c] for c in sets],
            "of_pi0": [p.tolist() for p in shares],
            "ranker": ["may"] * n,
            "at": 1_740_000_000.0 + np.arange(n),
        }
    ).write_parquet(folder / "may.parquet")
    features = {f"f{j}": taste[:, j] for j in range(2)}
    novel = [k >= 12 for k in range(16)]
    pl.DataFrame({"id": ids, "novel": novel, **features}).write_parquet(folder / "items.parquet")
    mapping = LogMapping(action="shown", reward="click", propensity="p", numeric=("x0", "x1"),
                         candidates="list", probabilities="of_pi0", version="ranker",
                         time="at")  # fmt: skip
    made = create("spring", folder / "may.parquet", folder / "items.parquet", pi0="logged",
                  mapping=mapping, by="ana", home=folder / "campaigns")  # fmt: skip
    made.train()
    made.certify()
    made.deploy("certain")
    return made


def test_what_was_served_with_candidates_is_the_next_rounds_logs(tmp_path: Path) -> None:
    campaign, clock = a_campaign(tmp_path), Clock()
    declared(campaign.files.folder, {"wait": 3.0}, begun=False)
    service = Service(campaign, ServingSettings(wait=3.0, holdout=0.2), clock=clock, ticks=Clock(),
                      refresh=3600.0, chance=seeded_chance())  # fmt: skip
    service.start()
    try:
        call = Caller(App(service, Access(tmp_path, open_to_all=True)))
        rng, asked = np.random.default_rng(1), []
        for k in range(1200):
            old, new = rng.choice(12, 3, replace=False), rng.choice([12, 13, 14, 15], 1)
            p = [*rng.dirichlet(np.ones(3)).tolist(), 0.0]
            asked.append(
                {
                    "key": f"k{k}",
                    "context": {"x0": round(float(rng.normal()), 3), "x1": 0.5},
                    "candidates": [f"i{a:02}" for a in (*old, *new)],
                    "probabilities": p,
                    "version": "june",
                }
            )
        made = []
        for first in (0, 400, 800):
            body = {"decisions": asked[first : first + 400]}
            made += call.post("/v1/decide/batch", body).json["decisions"]
        due = [{"decision": one["decision"], "reward": 1.0} for one in made[::2]]
        assert call.post("/v1/reward/batch", {"rewards": due}).status == 200
        clock.advance(3.1)
        service.turn()
        run = service.monitor.run
        assert run is not None and run.evidence.n == 1200 and not run.grave
        assert service.status.served.promises[0].served == 1200
    finally:
        service.close()
    found = export_served(campaign, None)
    assert (found.rows, found.restricted, found.share) == (1200, 0, 0.2)
    seen = campaign.observe(str(found.path), mapping=found.mapping)
    logs = campaign.logs(1)
    assert seen.rows == len(logs) == 1200 and logs.candidates is not None
    # times are seconds, as in the first logs: the next round reads both together
    both = joined([campaign.logs(0), logs])
    assert both.time is not None and both.time.max() == pytest.approx(clock.now - 3.1)
    by_id = {one["decision"]: one for one in asked_by(made, asked)}
    written = pl.read_parquet(found.path)
    assert set(written["ranker"]) == {"june"}
    ids = logs.catalogue.ids
    sets = logs.candidates
    for row in range(0, 1200, 100):
        one = by_id[written["decision"][row]]
        k = logs.context[row]
        mine = slice(sets.starts[k], sets.starts[k + 1])
        brought = dict(zip(one["candidates"], one["probabilities"], strict=True))
        assert sets.pi0 is not None
        for item, p in zip(ids[sets.items[mine]].tolist(), sets.pi0[mine].tolist(), strict=True):
            assert p == pytest.approx(brought.pop(item), abs=1e-6)
        assert not brought and ids[logs.action[row]] == one["action"]
    held = campaign.ledger.deployments(campaign.name)[-1].policy_hash
    require_drawn_by(campaign.drawing(1, held, 0.2, logs.catalogue), logs)


def asked_by(made: list[Any], asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was asked and answered, together."""
    return [ask | answer for ask, answer in zip(asked, made, strict=True)]
