"""What names a row, the keyed hash of it, and the sketch that knows rows again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.data.encodings import ACTIONS, ENCODINGS, columns, encoded, rows

from depsue.data import Catalogue, LoggedData
from depsue.data.identity import LogSketch, SketchBuilder, identities, keyed_folds
from depsue.data.keys import keyed_hash
from depsue.data.logs import ErasedRows

MASK = 2**64 - 1
BASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "timed": {"timed": True},
    "units": {"units": 300},
    "timed units": {"timed": True, "units": 300},
    "ids": {"ids": True},
    "timed ids": {"timed": True, "ids": True},
}


def siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 as its paper writes it, a byte string at a time."""

    def rotated(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (64 - bits))) & MASK

    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1], v[3] = rotated(v[1], 13) ^ v[0], rotated(v[3], 16) ^ v[2]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[1]) & MASK
            v[0] = (v[0] + v[3]) & MASK
            v[1], v[3] = rotated(v[1], 17) ^ v[2], rotated(v[3], 21) ^ v[0]
            v[2] = rotated(v[2], 32)

    padded = message + bytes((-len(message) - 1) % 8) + bytes([len(message) & 255])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_the_hash_is_siphash() -> None:
    key = bytes(range(16))
    assert siphash(key, bytes(range(15))) == 0xA129CA6149BE45E5  # the paper's own example
    reference = np.array([int.from_bytes(bytes(range(8)), "little")], dtype=np.uint64)
    assert keyed_hash(reference, key.hex()).tolist() == [0x93F5F5799A932462]
    words = np.random.default_rng(0).integers(0, MASK, 50, dtype=np.uint64)
    for secret in (key, bytes(range(100, 116))):
        expected = [siphash(secret, int(word).to_bytes(8, "little")) for word in words]
        assert keyed_hash(words, secret.hex()).tolist() == expected


def test_folds_have_their_shares_and_another_secret_is_another_split() -> None:
    names = np.arange(20_000, dtype=np.uint64)
    folds = [keyed_folds(names, (0.35, 0.05, 0.6), secret * 32) for secret in ("ab", "cd")]
    shares = np.bincount(folds[0]) / 20_000
    assert shares == pytest.approx([0.35, 0.05, 0.6], abs=0.015)
    assert (folds[0] == folds[1]).mean() == pytest.approx(0.35**2 + 0.05**2 + 0.6**2, abs=0.02)


NAMED = [("plain", "row"), ("timed", "time"), ("units", "unit"), ("ids", "decision")]


@pytest.mark.parametrize(("base", "kind"), [*NAMED, ("timed ids", "decision")])
def test_a_row_is_named_by_unit_else_id_else_time_else_number(base: str, kind: Any) -> None:
    given = columns(**BASES[base])
    logs = LoggedData.from_arrays(**given)
    assert logs.sketch.kind == kind
    names = identities(logs, kind)
    other_rewards = LoggedData.from_arrays(**{**given, "rewards": 1 - given["rewards"]})
    np.testing.assert_array_equal(identities(other_rewards, kind), names)
    order = np.argsort(given["contexts"][:, 0])
    in_order = identities(encoded(given, "sorted"), kind)
    assert bool((in_order == names[order]).all()) is (kind != "row")
    half = len(logs) // 2
    np.testing.assert_array_equal(
        identities(logs.take(slice(half, None)), kind, half), names[half:]
    )


def test_times_that_do_not_tell_rows_apart_do_not_name_them() -> None:
    given = columns(distinct=3, peak=0.9, timed=True)
    given["times"] = np.floor(given["times"] / 5000)
    assert LoggedData.from_arrays(**given).sketch.kind == "row"


@pytest.mark.parametrize("base", BASES)
def test_a_sketch_is_the_same_from_partitions_and_after_json(base: str) -> None:
    logs = rows(1500, **BASES[base])
    whole = json.dumps(logs.sketch.to_json())
    assert LogSketch.from_json(json.loads(whole)).to_json() == logs.sketch.to_json()
    for size in (20, 1499):
        builder = SketchBuilder()
        for start in range(0, 1500, size):
            builder.add(logs.take(slice(start, start + size)))
        assert json.dumps(builder.sketch().to_json()) == whole


def test_a_sketch_has_no_reward_and_stays_small() -> None:
    given = columns(20_000, timed=True)
    other = LoggedData.from_arrays(**{**given, "rewards": 1 - given["rewards"]})
    text = json.dumps(LoggedData.from_arrays(**given).sketch.to_json())
    assert json.dumps(other.sketch.to_json()) == text and len(text) < 150_000


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("how", ENCODINGS)
def test_rows_are_known_again(base: str, how: str) -> None:
    given = columns(**BASES[base])
    registered, again = LoggedData.from_arrays(**given).sketch, encoded(given, how).sketch
    assert again.overlap(registered) and registered.overlap(again)


@pytest.mark.parametrize("days", [False, True])
@pytest.mark.parametrize("how", ["sorted", "shuffled", "sorted, a feature"])
def test_rows_in_another_order_are_known_where_contexts_are_few(how: str, days: bool) -> None:
    given = columns(distinct=4, timed=days)
    if days:
        given["times"] = np.floor(given["times"] / given["times"].max() * 10)
    logs = LoggedData.from_arrays(**given)
    order = np.random.default_rng(0).permutation(len(logs))
    if how != "shuffled":
        order = np.argsort(logs.context, kind="stable")
    again = logs.take(order)
    if how.endswith("feature"):
        again = replace(again, contexts=again.contexts + np.float32(1e-4))
    overlap = again.sketch.overlap(logs.sketch)
    assert overlap and overlap.share == 1.0 and not overlap.same.get("row", False)


def test_a_few_rows_of_few_kinds_are_not_known_by_their_counts() -> None:
    logs = rows(30, 0, distinct=1, peak=0.9)
    assert "bag" not in logs.sketch.views


@pytest.mark.parametrize("larger", [1, 10])
@pytest.mark.parametrize(
    "world",
    [
        {},
        {"timed": True},
        {"units": 300},
        {"ids": True},
        {"distinct": 40},
        {"distinct": 40, "timed": True},
        {"distinct": 1},
        {"distinct": 2000},
        {"peak": 0.8},
        {"peak": 0.95},
        {"peak": 0.95, "distinct": 1},
        {"peak": 0.95, "distinct": 40, "timed": True},
    ],
    ids=str,
)
def test_fresh_rows_of_the_same_world_are_not_taken_for_known(
    world: dict[str, Any], larger: int
) -> None:
    for seed in range(3):
        first, fresh = rows(2000, 2 * seed, **world), rows(2000 * larger, 2 * seed + 1, **world)
        assert not fresh.sketch.overlap(first.sketch)


def ticking(seed: int, per: int, *, distinct: int | None = None, start: int = 0) -> LoggedData:
    """Rows at whole seconds, so many in each on average."""
    logs = rows(4000, seed, distinct=distinct)
    draw = np.random.default_rng(1000 + seed)
    ticks = start + np.sort(draw.integers(0, 4000 // per, 4000)).astype(float)
    return replace(logs, time=ticks)


def renamed(logs: LoggedData) -> LoggedData:
    ids = np.array([f"sku-{item}" for item in logs.catalogue.ids.tolist()])
    return replace(logs, catalogue=replace(logs.catalogue, ids=ids))


@pytest.mark.parametrize("per", [1, 3, 6, 60])
@pytest.mark.parametrize("distinct", [None, 12])
@pytest.mark.parametrize("how", ["shuffled, less one", "four in five", "half", "renamed", "later"])
def test_rows_at_whole_seconds_are_known_again(per: int, distinct: int | None, how: str) -> None:
    logs, draw = ticking(1, per, distinct=distinct), np.random.default_rng(5)
    again = {
        "shuffled, less one": lambda: logs.take(draw.permutation(len(logs))[1:]),
        "four in five": lambda: logs.take(np.flatnonzero(draw.random(len(logs)) < 0.8)),
        "half": lambda: logs.take(draw.permutation(len(logs))[:2000]),
        "renamed": lambda: renamed(logs),
        "later": lambda: replace(logs, time=np.asarray(logs.time) + 7200).take(
            np.argsort(logs.contexts[logs.context, 0], kind="stable")[1:]
        ),
    }[how]()
    assert again.sketch.overlap(logs.sketch) and logs.sketch.overlap(again.sketch)


@pytest.mark.parametrize("per", [1, 3, 6, 60])
@pytest.mark.parametrize("distinct", [None, 12, 200])
@pytest.mark.parametrize("start", [0, 100_000])
def test_fresh_rows_at_the_same_or_other_seconds_are_new(
    per: int, distinct: int | None, start: int
) -> None:
    first = ticking(1, per, distinct=distinct)
    for seed in range(2, 8):
        assert not ticking(seed, per, distinct=distinct, start=start).sketch.overlap(first.sketch)


@pytest.mark.parametrize("distinct", [12, 200, None])
@pytest.mark.parametrize("how", ["shuffled, less one", "four in five, in order"])
def test_rows_without_times_are_known_by_how_often_they_occur(
    distinct: int | None, how: str
) -> None:
    logs, draw = rows(4000, 1, distinct=distinct), np.random.default_rng(5)
    order = draw.permutation(len(logs))[1:]
    if how != "shuffled, less one":
        order = np.flatnonzero(draw.random(len(logs)) < 0.8)
    assert logs.take(order).sketch.overlap(logs.sketch)


def test_clocks_and_ids_that_count_rows_do_not_make_rows_the_same() -> None:
    counted = [replace(rows(3000, k), time=np.arange(3000.0)) for k in range(5)]
    numbered = [
        LoggedData.from_arrays(**{**columns(3000, k), "decisions": np.arange(3000)})
        for k in range(5)
    ]
    for clocks in (counted, numbered):
        for logs in clocks[1:]:
            assert not logs.sketch.overlap(clocks[0].sketch)


@pytest.mark.parametrize("distinct", [None, 30])
def test_a_sketch_of_many_rows_is_the_same_from_partitions(distinct: int | None) -> None:
    logs = rows(12_000, distinct=distinct)
    builder = SketchBuilder()
    for start in range(0, 12_000, 5000):
        builder.add(logs.take(slice(start, start + 5000)))
    assert builder.sketch().to_json() == logs.sketch.to_json()


def test_rows_that_are_named_by_number_keep_their_names_when_others_are_erased() -> None:
    logs = rows(400)
    whole = identities(logs, "row")
    first = logs.take(np.delete(np.arange(400), [3, 200]))
    first = replace(first, erased=(ErasedRows("", 2, (3, 200), 2, 1, ""),))
    assert (identities(first, "row") == np.delete(whole, [3, 200])).all()
    assert first.numbers[3] == 4
    second = replace(
        first.take(np.arange(1, 398)), erased=(*first.erased, ErasedRows("", 1, (0,), 1, 0, ""))
    )
    assert (identities(second, "row") == np.delete(whole, [0, 3, 200])).all()


def panel(seed: int, *, distinct: int | None, peak: float) -> LoggedData:
    """The same contexts, each as often whatever the seed, with actions of the seed's own."""
    contexts = columns(4000, 0, distinct=distinct, peak=peak)["contexts"]
    return shown(contexts, np.random.default_rng(1000 + seed), peak)


def shown(contexts: Any, draw: np.random.Generator, peak: float) -> LoggedData:
    """Actions drawn in these contexts."""
    n = len(contexts)
    preferred = np.abs(contexts[:, 0] * 7).astype(int) % ACTIONS
    other = (preferred + draw.integers(1, ACTIONS, n)) % ACTIONS
    follows = draw.random(n) < peak
    given = columns(n, 0) | {
        "contexts": contexts,
        "actions": np.where(follows, preferred, other),
        "propensities": np.where(follows, peak, (1 - peak) / (ACTIONS - 1)),
    }
    return LoggedData.from_arrays(**given)


@pytest.mark.parametrize("distinct", [4, 400, None])
@pytest.mark.parametrize("peak", [0.2, 0.8, 0.9])
def test_replayed_rows_are_known_although_contexts_come_back(
    distinct: int | None, peak: float
) -> None:
    logs = panel(1, distinct=distinct, peak=peak)
    shuffled = logs.take(np.random.default_rng(3).permutation(4000)[1:])
    assert shuffled.sketch.overlap(logs.sketch, contents=False)
    for seed in range(2, 6):
        fresh = panel(seed, distinct=distinct, peak=peak)
        assert not fresh.sketch.overlap(logs.sketch, contents=False)


def reissued(logs: LoggedData, which: Any, seed: int) -> LoggedData:
    """Some of the rows, with ids of decisions made anew."""
    part = logs.take(which)
    ids = np.random.default_rng(seed).integers(0, MASK, len(part), dtype=np.uint64)
    return replace(part, decision=ids)


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("contents", [False, True])
def test_random_parts_of_one_file_are_known_again(ids: bool, contents: bool) -> None:
    """Two fifths of the rows each, in their order; a sixth of them are in two files."""
    pool, draw = rows(5000, 1, peak=0.4), np.random.default_rng(6)
    files = [np.sort(draw.permutation(5000)[:2000]) for _ in range(12)]
    parts = [reissued(pool, which, k) if ids else pool.take(which) for k, which in enumerate(files)]
    for part in parts[1:]:
        overlap = part.sketch.overlap(parts[0].sketch, contents=contents)
        assert overlap and not any(overlap.same.values())


@pytest.mark.parametrize("distinct", [None, 300])
@pytest.mark.parametrize("kept", [0.5, 0.6, 0.9])
@pytest.mark.parametrize("ids", [False, True])
def test_a_replayed_round_less_many_rows_is_known(
    distinct: int | None, kept: float, ids: bool
) -> None:
    logs, draw = panel(1, distinct=distinct, peak=0.4), np.random.default_rng(7)
    for seed in range(3):
        which = draw.permutation(4000)[: int(4000 * kept)]
        again = reissued(logs, which, seed) if ids else logs.take(which)
        assert again.sketch.overlap(logs.sketch, contents=False)


@pytest.mark.parametrize("contents", [False, True])
@pytest.mark.parametrize("peak", [0.2, 0.4, 0.8, 0.95])
def test_the_same_users_on_other_days_are_new(contents: bool, peak: float) -> None:
    """Users who come once a day, or now and then; or a few of them have nearly all rows."""
    draw = np.random.default_rng(8)
    users = draw.normal(size=(400, 2))
    for seed in range(300, 320, 2):
        now_and_then = [rows(2000, seed + k, distinct=6000, peak=peak) for k in (0, 1)]
        every_day = [panel(seed + k, distinct=None, peak=peak) for k in (0, 1)]
        every_day = [day.take(draw.permutation(len(day))) for day in every_day]
        often = [users[np.minimum(draw.geometric(0.5, 3000) ** 2, 399)] for _ in (0, 1)]
        few = [shown(contexts, draw, peak) for contexts in often]
        # day after day the very same users: declared, or a later round
        for first, second in (now_and_then, few, *([] if contents else [every_day])):
            assert not second.sketch.overlap(first.sketch, contents=contents), (seed, peak)


def banners(seed: int, shares: tuple[float, ...]) -> LoggedData:
    """No context, three banners, ids of decisions."""
    draw = np.random.default_rng(seed)
    actions = draw.choice(3, 4000, p=shares)
    return LoggedData.from_arrays(
        contexts=np.zeros((4000, 1)),
        actions=actions,
        rewards=np.zeros(4000),
        propensities=np.array(shares)[actions],
        catalogue=Catalogue.of(range(4), novel=[3]),
        r_max=1.0,
        decisions=[f"{id:x}" for id in draw.integers(0, MASK, 4000, dtype=np.uint64)],
    )


def test_a_second_uniform_test_without_contexts_is_not_the_first() -> None:
    third = (1 / 3, 1 / 3, 1 / 3)
    for seed in range(0, 20, 2):
        first, second = banners(seed, third).sketch, banners(seed + 1, third).sketch
        assert not second.overlap(first) and not second.overlap(first, contents=False)


def test_ids_do_not_tell_rows_of_few_kinds_apart() -> None:
    """They can be made anew, so sorted rows less a few might be the same ones."""
    logs, draw = banners(1, (0.5, 0.3, 0.2)), np.random.default_rng(9)
    for seed in range(20):
        again = reissued(logs, draw.permutation(4000)[:3680], seed)
        assert again.sketch.may_be(logs.sketch) or again.sketch.overlap(logs.sketch)
    timed = [replace(logs, time=1e7 * k + np.arange(4000.0) ** 1.1) for k in (0, 1)]
    assert not timed[0].sketch.may_be(timed[1].sketch)
