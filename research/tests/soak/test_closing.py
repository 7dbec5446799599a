"""Books that close, and books with one break each: every rule catches its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from depsue import Uniform
from depsue.data.catalogue import Catalogue
from depsue.data.mapping import LogMapping
from depsue.serving.served import ServedPolicy
from depsue_research.soak.book import (
    Acknowledged,
    Ask,
    Book,
    Books,
    Fault,
    Health,
    Intervened,
    NotAnswered,
    RewardSent,
)
from depsue_research.soak.closing import RULES, Closing, Kept

ITEMS, N, WAIT = 4, 400, 2.0
STORED, KEYS, EQUAL, JOURNAL, ASKED, REWARDS, EXPORT, STOP, PROPENSITY, FREQUENCY, *REST = RULES
HOLDOUT, REFUSED, WELL, DAMAGED, MONITOR = REST


@dataclass
class Story:
    """A soak without a break, to be broken."""

    entries: list[msgspec.Struct] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    rewards: list[dict[str, Any]] = field(default_factory=list)
    exported: list[dict[str, Any]] = field(default_factory=list)

    def broken_rules(self, folder: Path) -> list[str]:
        """The rules that these books break."""
        book = Book(folder / "book.jsonl")
        for entry in self.entries:
            book.write(entry)
        book.close()
        policy = Uniform(np.ones(ITEMS, dtype=bool))
        catalogue = Catalogue(np.arange(ITEMS) + 10, np.zeros(ITEMS, dtype=bool))
        mapping = LogMapping("action", "reward", numeric=("x",))
        served = ServedPolicy(1, "hash", "certified", 0.1, policy, policy, catalogue, mapping)
        kept = Kept(self.decisions, self.rewards, self.exported, served, 0.1, WAIT, "largest")
        return [each.rule for each in Closing(Books([book], 2), kept).breaks()]

    def of(self, kind: type[Any]) -> list[Any]:
        """All entries of a kind."""
        return [entry for entry in self.entries if isinstance(entry, kind)]


def story() -> Story:
    """Two services, an outage of the second, a twin, a stop; every book closes."""
    made = Story()
    for k in range(N):
        decided_by = "holdout" if k % 10 == 0 else "policy"
        add(made, f"0-{k}", f"d{k}", at=k / 10, action=k // 10 % ITEMS, decided_by=decided_by)
    made.entries += [Health(k, t / 10, True, "", 0, 1) for k in (0, 1) for t in range(1000)]
    made.entries.append(Fault("store down", 1, 50.0, 51.0))
    add(made, "1-0", "first", at=49.0, action=0, decided_by="pi0")
    answer(made, "1-0", "twin", at=50.5, action=1, decided_by="pi0", service=1)
    row(made, "1-0", "twin", action=1, decided_by="pi0", twin=True)
    made.entries.append(Intervened("stop", 0, ["s"], 60.0, 60.1, True))
    add(made, "1-1", "stopped", at=61.0, action=0, decided_by="pi0")
    made.entries.append(Intervened("resume", 0, ["s"], 70.0, 70.1, True))
    add(made, "1-2", "resumed", at=71.0, action=0, decided_by="policy")
    return made


def add(made: Story, request: str, id: str, *, at: float, action: int, decided_by: str) -> None:
    """A decision that was asked for, answered, stored, rewarded twice, and exported."""
    made.entries.append(Ask(request, True, {"x": 1.0}, None, at))
    answer(made, request, id, at=at, action=action, decided_by=decided_by)
    row(made, request, id, action=action, decided_by=decided_by)
    for value, later in ((0.2, 0.1), (0.3, 0.3)):
        made.entries.append(RewardSent(id, "", value, 0, at + later, at + later + 0.1, True))
    made.rewards.append({"decision": id, "name": "reward", "event": "", "value": 0.2})
    if decided_by in ("policy", "holdout"):
        shown = {"action": 10 + action, "propensity": 1 / ITEMS, "x": 1.0, "reward": 0.2}
        made.exported.append({"decision": id, **shown})


def answer(
    made: Story, request: str, id: str, *, at: float, action: int, decided_by: str, service: int = 0
) -> None:
    """An answer that a client wrote down."""
    values = (id, 10 + action, 1 / ITEMS, "hash", 1, decided_by)
    made.entries.append(Acknowledged(request, service, [service], at, at + 0.05, *values))


def row(
    made: Story, request: str, id: str, *, action: int, decided_by: str, twin: bool = False
) -> None:
    """A decision in the store."""
    stored = {"id": id, "key": request, "action": action, "propensity": 1 / ITEMS, "twin": twin}
    stored |= {"p_policy": 1 / ITEMS, "p_pi0": 1 / ITEMS, "holdout": 0.1}
    stored |= {"policy": "hash", "round": 1, "decided_by": decided_by, "candidates": None}
    made.decisions.append(stored | {"context": json.dumps({"x": 1.0})})


def test_books_close_where_the_service_kept_its_word(tmp_path: Path) -> None:
    assert story().broken_rules(tmp_path) == []


def test_a_killed_service_may_decide_again_what_may_be_in_the_store(tmp_path: Path) -> None:
    made = story()
    forgotten_while_stopped(made)
    made.entries.append(Fault("killed", 1, 50.4, 50.5))
    assert made.broken_rules(tmp_path) == []


def lost(made: Story) -> None:
    del made.decisions[5]


def other_propensity(made: Story) -> None:
    made.decisions[5]["propensity"] = 0.5


def unmarked_twin(made: Story) -> None:
    next(row for row in made.decisions if row["twin"])["twin"] = False


def twin_in_calm(made: Story) -> None:
    answer(made, "1-0", "twin", at=80.0, action=1, decided_by="pi0", service=1)


def two_answers_in_calm(made: Story) -> None:
    answer(made, "0-7", "other", at=1.0, action=0, decided_by="policy")
    row(made, "0-7", "other", action=0, decided_by="policy", twin=True)


def forgotten_journal(made: Story) -> None:
    made.entries.append(Ask("1-9", True, {"x": 1.0}, None, 50.1))
    for id, at in (("one", 50.2), ("two", 50.8)):
        answer(made, "1-9", id, at=at, action=0, decided_by="pi0", service=1)
        row(made, "1-9", id, action=0, decided_by="pi0", twin=id == "two")
        made.decisions[-1]["why"] = "the store of decisions is gone: cut off"


def forgotten_while_stopped(made: Story) -> None:
    """pi0 decides for another reason, too; the service was not killed in between."""
    forgotten_journal(made)
    for row in made.decisions[-2:]:
        row["why"] = "a stop"


def not_asked_for(made: Story) -> None:
    row(made, "nobody's", "spare", action=0, decided_by="pi0")
    made.decisions[-1]["context"] = json.dumps({"x": 7.0})


def later_reward(made: Story) -> None:
    made.rewards[0]["value"] = 0.3


def reward_twice(made: Story) -> None:
    made.rewards.append(dict(made.rewards[0]))


def reward_lost(made: Story) -> None:
    del made.rewards[0]


def not_exported(made: Story) -> None:
    del made.exported[3]


def other_reward_exported(made: Story) -> None:
    made.exported[3]["reward"] = 0.3


def stop_lifted(made: Story) -> None:
    for entries in (made.decisions, made.of(Acknowledged)):
        for entry in entries:
            if (entry["id"] if isinstance(entry, dict) else entry.decision) != "stopped":
                continue
            if isinstance(entry, dict):
                entry["decided_by"] = "policy"
            else:
                entry.decided_by = "policy"
    shown = {"action": 10, "propensity": 1 / ITEMS, "x": 1.0, "reward": 0.2}
    made.exported.append({"decision": "stopped", **shown})


def another_stop_resumed(made: Story) -> None:
    next(each for each in made.of(Intervened) if each.kind == "resume").stops = ["other"]


def wrong_distribution(made: Story) -> None:
    for stored, told in zip(made.decisions, made.of(Acknowledged), strict=True):
        stored["propensity"] = told.propensity = 0.4
    for exported in made.exported:
        exported["propensity"] = 0.4
    for stored in made.decisions:
        stored["p_policy"] = stored["p_pi0"] = 0.4


def always_the_same(made: Story) -> None:
    for stored, told in zip(made.decisions, made.of(Acknowledged), strict=True):
        stored["action"], told.action = 0, 10
    for exported in made.exported:
        exported["action"] = 10


def no_holdout(made: Story) -> None:
    for k in range(N, 4 * N):
        add(made, f"0-{k}", f"d{k}", at=1.0, action=k % ITEMS, decided_by="policy")


def a_failure(made: Story) -> None:
    made.entries.append(NotAnswered(0, "/v1/decide", 500, "something went wrong", 1.0))


def never_well(made: Story) -> None:
    for look in made.of(Health):
        look.well = look.well and not (look.service == 1 and 51 < look.began < 90)


def damage(made: Story) -> None:
    made.of(Health)[3].damaged = 1


def false_alarm(made: Story) -> None:
    made.of(Health)[3].stopped = "the floor is refuted"


@pytest.mark.parametrize(
    ("broken", "rules"),
    [
        (lost, {STORED}),
        (other_propensity, {STORED, PROPENSITY}),
        (unmarked_twin, {KEYS}),
        (twin_in_calm, {EQUAL}),
        (two_answers_in_calm, {EQUAL}),
        (forgotten_journal, {JOURNAL}),
        (forgotten_while_stopped, {JOURNAL}),
        (not_asked_for, {ASKED}),
        (later_reward, {REWARDS}),
        (reward_twice, {REWARDS}),
        (reward_lost, {REWARDS}),
        (not_exported, {EXPORT}),
        (other_reward_exported, {EXPORT}),
        (stop_lifted, {STOP}),
        (another_stop_resumed, {STOP}),
        (wrong_distribution, {PROPENSITY}),
        (always_the_same, {FREQUENCY}),
        (no_holdout, {HOLDOUT}),
        (a_failure, {REFUSED}),
        (never_well, {WELL}),
        (damage, {DAMAGED}),
        (false_alarm, {MONITOR}),
    ],
)
def test_each_break_is_caught(
    broken: Callable[[Story], None], rules: set[str], tmp_path: Path
) -> None:
    made = story()
    broken(made)
    assert set(made.broken_rules(tmp_path)) == rules
