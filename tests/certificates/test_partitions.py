"""Certifying over partitions: the certificate that the same rows give in memory."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from depsue.certificates import (
    Ceiling,
    Certificate,
    Credit,
    LogStream,
    MixtureLadder,
    Reads,
    Rules,
    certify,
    strict,
    verify,
)
from depsue.certificates.rules import Control
from depsue.data import Catalogue, hashes
from depsue.data.mapping import EstimatedPropensities, LogMapping
from depsue.data.reading import Source, read_mapped
from depsue.errors import ConfigError, DataError, DepsueError
from depsue.policies import ChosenPolicy, Mixture, OwnPolicy, ScoreTable, Uniform
from depsue.promises import Floor, Promise
from depsue.rewards import fit_linear
from depsue.testing.splits import split

N, BATCH = 3000, 700
FEATURES = np.random.default_rng(1).normal(size=(5, 2))
CATALOGUE = Catalogue.of([f"a{k}" for k in range(5)], novel=["a4"], features=FEATURES)
PI0 = np.array([[0.4, 0.3, 0.2, 0.1, 0.0], [0.1, 0.2, 0.3, 0.4, 0.0]])
POINTS = np.array([[0, 1, 0], [1, 1, 0], [2, 1, 0], [0, 0, 1], [1, 0, 1], [2, 0, 1]], dtype="f4")
MAPPING = LogMapping(
    action="item",
    reward="click",
    propensity="p",
    numeric=("age",),
    categorical={"country": ("NO", "SE")},
    other_rewards={"minutes": 10.0},
    segments=("country", "age"),
)
BY_UNIT = replace(MAPPING, unit="user", time="when")


def own(first: list[float], second: list[float]) -> OwnPolicy:
    return OwnPolicy(ScoreTable(POINTS, np.array([first] * 3 + [second] * 3)), 5)


LOGGING = own(PI0[0].tolist(), PI0[1].tolist())
BETTER = own([0.1, 0.2, 0.2, 0.5, 0.0], [0.05, 0.1, 0.25, 0.6, 0.0])
NOVEL = Uniform(CATALOGUE.novel)
SHARES = np.array([[1 - nu, nu] for nu in (0.0, 0.02, 0.05, 0.3, 0.9)])
LEVELS = MixtureLadder((BETTER, NOVEL), SHARES)
PROMISES = (
    Promise(Floor(0.9)),
    Promise(Floor(0.8), name="sweden", segment=("country", "SE")),
    Promise(Floor(0.8), name="minutes", reward="minutes", r_max=10.0),
)
ABSOLUTE = (Promise(Floor(ratio=None, absolute=0.2)),)


def table(n: int = N) -> pl.DataFrame:
    draw = np.random.default_rng(2)
    country, age = draw.integers(0, 2, n), draw.integers(0, 3, n)
    action = (draw.random(n)[:, None] > PI0.cumsum(axis=1)[country]).sum(axis=1).clip(max=3)
    return pl.DataFrame(
        {
            "item": np.array([f"a{k}" for k in range(5)])[action],
            "click": (draw.random(n) < 0.1 + 0.2 * action).astype(int),
            "p": PI0[country, action],
            "age": age,
            "country": np.array(["NO", "SE"])[country],
            "minutes": draw.uniform(0, 10, n) * (draw.random(n) < 0.5 + 0.1 * action),
            "user": [f"u{k}" for k in draw.integers(0, n // 4, n)],
            "when": np.datetime64("2026-01-01", "us") + np.arange(n).astype("m8[s]"),
        }
    )


TABLE = table()


def stream(mapping: LogMapping = MAPPING, batch: int = BATCH, rows: Any = TABLE) -> LogStream:
    return LogStream(Source.of(rows), mapping, CATALOGUE, batch)


def both(
    rules: Rules, mapping: LogMapping = MAPPING, levels: MixtureLadder = LEVELS, **more: Any
) -> tuple[Certificate, Certificate]:
    """The certificate in memory, and the one by streaming."""
    logs = read_mapped(Source.of(TABLE), mapping, CATALOGUE)
    rules_in_memory = replace(rules, assumptions=(*rules.assumptions, *mapping.assumptions))
    expected = certify(levels, split(logs, "spring"), rules_in_memory, Reads(), **more)
    streamed = certify(levels, split(stream(mapping), "spring"), rules, Reads(), **more)
    return expected, streamed


def assert_same(expected: Any, streamed: Any) -> None:
    """Equal, numbers to 1e-9."""
    if isinstance(expected, dict):
        assert expected.keys() == streamed.keys()
        for name in expected:
            assert_same(expected[name], streamed[name])
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(streamed)
        for one, other in zip(expected, streamed, strict=True):
            assert_same(one, other)
    elif isinstance(expected, float):
        assert streamed == pytest.approx(expected, rel=1e-9, abs=1e-9)
    else:
        assert expected == streamed


RULES = {
    "normal, paired, three promises": Rules(PROMISES, clip=4.0),
    "normal, absolute": Rules(ABSOLUTE, clip=4.0),
    "normal, ceiling": Rules(clip=4.0, ceilings={"reward": Ceiling(0.4, 0.01, 10, "rows")}),
    "normal, credit": Rules(clip=4.0, credits={"reward": Credit(0.01, 0.02)}),
    "smoothing, paired, three promises": Rules(PROMISES, clip=4.0, bound="smoothing"),
    "smoothing, absolute": Rules(ABSOLUTE, clip=4.0, bound="smoothing"),
    "betting, paired, three promises": Rules(PROMISES, clip=4.0, bound="betting"),
    "betting, absolute": Rules(ABSOLUTE, clip=4.0, bound="betting"),
    "hcope, absolute": Rules(ABSOLUTE, clip=4.0, bound="hcope"),
}


@pytest.mark.parametrize("name", RULES)
def test_the_certificate_is_that_of_the_rows_in_memory(name: str) -> None:
    expected, streamed = both(RULES[name])
    assert_same(asdict(expected), asdict(streamed))
    assert (
        streamed.passed and 1 < streamed.tested and streamed.shares[1] < 0.9
    )  # some passed, one failed


@pytest.mark.parametrize("name", [name for name in RULES if "hcope" not in name])
def test_units_are_the_sample(name: str) -> None:
    expected, streamed = both(RULES[name], BY_UNIT)
    assert_same(asdict(expected), asdict(streamed))
    assert streamed.verdicts[0].n < 0.6 * N / 3


def test_rows_of_another_policy_a_control_variate_and_a_failing_first_level() -> None:
    logs = read_mapped(Source.of(TABLE), MAPPING, CATALOGUE)
    control = Control(LOGGING, fit_linear(logs), most=1.0, coefficients={"reward": 0.7})
    for rules in (Rules(clip=4.0, control=control), Rules(clip=4.0, largest=2.0)):
        for levels in (LEVELS, MixtureLadder((BETTER, NOVEL), SHARES[-1:])):
            expected, streamed = both(rules, levels=levels, logging_policy=LOGGING)
            assert_same(asdict(expected), asdict(streamed))
            assert streamed.passed == (levels is LEVELS)


def test_what_the_logs_alone_know_can_be_a_part() -> None:
    expected, streamed = both(
        Rules(PROMISES), levels=MixtureLadder((ChosenPolicy(NOVEL.n_actions), NOVEL), SHARES[1:])
    )
    assert_same(asdict(expected), asdict(streamed))


@pytest.mark.parametrize(("batch", "bound"), [(23, "normal"), (10**6, "normal"), (64, "betting")])
def test_the_batch_changes_nothing(batch: int, bound: str) -> None:
    rows, rules = TABLE[:400], Rules(PROMISES[:2], clip=4.0, bound=bound)
    levels = MixtureLadder((BETTER, NOVEL), SHARES[:1])
    expected, streamed = (
        certify(levels, split(stream(batch=size, rows=rows), "spring"), rules, Reads())
        for size in (100, batch)
    )
    assert_same(asdict(expected), asdict(streamed))


def test_the_number_of_levels_in_a_pass_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Rules(clip=4.0)
    expected = [both(rules, mapping)[1] for mapping in (MAPPING, BY_UNIT)]
    monkeypatch.setattr(strict, "LEVELS_A_PASS", 2)
    monkeypatch.setattr(strict, "UNIT_SUMS", 1)
    for one, mapping in zip(expected, (MAPPING, BY_UNIT), strict=True):
        assert_same(asdict(one), asdict(both(rules, mapping)[1]))


HASHED = {
    "plain": MAPPING,
    "units and times": BY_UNIT,
    "numbers as times, whole numbers as units": replace(MAPPING, unit="age", numeric=(), time="p2"),
    "no context": replace(MAPPING, numeric=(), categorical={}, segments=()),
    "one position": replace(MAPPING, position="age", numeric=(), segments=(), keep_position=1),
    "estimated": replace(MAPPING, propensity=None, estimated=EstimatedPropensities(("country",))),
    "rounds": replace(MAPPING, round="one"),
    "ids": replace(MAPPING, decision="id"),
    "floats, all of them distinct": replace(MAPPING, numeric=("minutes",), other_rewards={}),
}


@pytest.mark.parametrize("name", HASHED)
@pytest.mark.parametrize("batch", [97, 5000])
def test_the_hash_is_that_of_the_rows_in_memory(
    name: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "SORTED_AT_ONCE", 64)  # several parts, as in long logs
    mapping = HASHED[name]
    rows = TABLE.with_columns(one=pl.lit(1), p2=pl.col("p") * 2, id=pl.int_range(pl.len()) * 7)
    if mapping.unit == "age":
        mapping = replace(mapping, segments=())
    expected = read_mapped(Source.of(rows), mapping, CATALOGUE)
    streamed = stream(mapping, batch, rows)
    assert streamed.hash == expected.hash
    assert streamed.facts.units == (0 if expected.units is None else len(expected.units))


def test_folds_hold_the_rows_that_they_hold_in_memory() -> None:
    table = TABLE.with_columns(id=pl.format("e{}", pl.int_range(pl.len())))
    for mapping in (MAPPING, BY_UNIT, replace(MAPPING, decision="id")):
        expected = split(read_mapped(Source.of(table), mapping, CATALOGUE), "spring")
        streamed = split(stream(mapping, rows=table), "spring")
        assert streamed.registration == expected.registration
        for name in ("learn", "select", "certify"):
            fold = getattr(streamed, name)
            assert fold.sample(10**9).hash == getattr(expected, name).hash
            assert fold.rows == len(getattr(expected, name))
        some = streamed.learn.sample(300)
        assert 150 < len(some) < 450
        if some.units is not None:  # whole units
            whole = streamed.learn.sample(10**9)
            assert len(some) == sum(np.isin(np.asarray(whole.units)[whole.unit], some.units))


def test_an_id_in_two_partitions_is_refused() -> None:
    table = TABLE.with_columns(id=pl.int_range(pl.len()) % (pl.len() - 10))
    with pytest.raises(DataError, match=r"one row of the logs.*10 rows.*leave decision out"):
        split(stream(replace(MAPPING, decision="id"), rows=table), "spring")


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for k in range(3):
        TABLE[k * 1000 : (k + 1) * 1000].write_parquet(tmp_path / f"{k}.parquet", row_group_size=90)
    streamed = LogStream.open(tmp_path, MAPPING, CATALOGUE, 123)
    assert streamed.hash == read_mapped(Source.of(TABLE), MAPPING, CATALOGUE).hash


def test_an_attempt_is_counted_before_the_rows_are_read() -> None:
    reads, rules = Reads(retries=True), Rules(clip=4.0)
    folds = split(stream(), "spring")

    def crash(contexts: Any) -> Any:
        assert reads.count(folds.data) == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(MixtureLadder((OwnPolicy(crash, 5),), np.ones((1, 1))), folds, rules, reads)
    again = certify(LEVELS, folds, rules, reads)
    assert again.attempt == 2 and again.delta == pytest.approx(0.05 / 4)
    once, logs = Reads(), read_mapped(Source.of(TABLE), MAPPING, CATALOGUE)
    certify(LEVELS, split(logs, "summer"), rules, once)
    with pytest.raises(ConfigError, match=r"one verdict.*attempt 2"):  # the same rows, streamed
        certify(LEVELS, folds, rules, once)


def test_a_certificate_can_be_verified_by_streaming_and_in_memory() -> None:
    logs = read_mapped(Source.of(TABLE), BY_UNIT, CATALOGUE)
    for mapping in (MAPPING, BY_UNIT):
        streamed = both(Rules(PROMISES, clip=4.0), mapping)[1]
        policy = LEVELS.policy(SHARES[:, 1].tolist().index(streamed.shares[1]))
        assert verify(streamed, stream(mapping, 512), policy).equal
        assert verify(streamed, read_mapped(Source.of(TABLE), mapping, CATALOGUE), policy).equal
        other = verify(streamed, stream(mapping), Mixture([BETTER, NOVEL], [0.5, 0.5]))
        assert not other.equal and "bound" in str(other)
        fewer = verify(streamed, stream(mapping, rows=TABLE[1:]), policy)
        assert "the logs have the hash" in str(fewer)
    in_memory = certify(LEVELS, split(logs, "spring"), Rules(clip=4.0), Reads())
    policy = LEVELS.policy(SHARES[:, 1].tolist().index(in_memory.shares[1]))
    assert verify(in_memory, stream(BY_UNIT), policy).equal


BROKEN: dict[str, tuple[pl.Expr, str]] = {
    "reward above r_max": (pl.lit(2).alias("click"), r"rewards must lie.*'click', row 2950"),
    "reward missing": (pl.lit(None, pl.Int64).alias("click"), r"must not be missing.*'click', row"),
    "propensity 0": (pl.lit(0.0).alias("p"), r"propensities must lie.*'p', row 2950"),
    "unknown action": (pl.lit("b").alias("item"), r"must be in the catalogue.*'item', row 2950"),
    "novel action": (pl.lit("a4").alias("item"), r"novel must not be.*'item', row 2950"),
    "context not finite": (pl.lit(np.inf).alias("age"), r"finite.*'age', row 2950"),
    "unit missing": (pl.lit(None, pl.String).alias("user"), r"missing.*'user', row 2950"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_malformed_rows_are_named_and_nothing_is_counted(name: str) -> None:
    expression, words = BROKEN[name]
    column = expression.meta.output_name()
    broken = pl.when(pl.int_range(pl.len()) == 2950).then(expression).otherwise(column)
    with pytest.raises(DataError, match=words):
        split(stream(BY_UNIT, rows=TABLE.with_columns(broken.alias(column))), "spring")


def test_a_file_that_breaks_off_gives_no_certificate(tmp_path: Path) -> None:
    for k in range(3):
        TABLE.write_parquet(tmp_path / f"{k}.parquet")
    folds = split(LogStream.open(tmp_path, MAPPING, CATALOGUE), "spring")
    whole = (tmp_path / "1.parquet").read_bytes()
    (tmp_path / "1.parquet").write_bytes(whole[: len(whole) // 2])
    reads = Reads()
    with pytest.raises(DepsueError, match=r"must be readable|must not change"):
        certify(LEVELS, folds, Rules(clip=4.0), reads)
    assert reads.count(folds.data) == 1  # the rows may have been seen


def test_files_that_change_meanwhile_are_refused(tmp_path: Path) -> None:
    TABLE.write_csv(tmp_path / "0.csv")
    folds = split(LogStream.open(tmp_path / "0.csv", MAPPING, CATALOGUE), "spring")
    TABLE[:-1].write_csv(tmp_path / "0.csv")
    with pytest.raises(DepsueError, match=r"must not change.*2,999 rows.*3,000.*copy"):
        certify(LEVELS, folds, Rules(clip=4.0), Reads())


def test_what_cannot_be_had_by_streaming_is_refused_before_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folds, reads = split(stream(BY_UNIT), "spring"), Reads()
    with pytest.raises(ConfigError, match=r"hcope clips rows.*'user'.*normal, betting"):
        certify(LEVELS, folds, RULES["hcope, absolute"], reads)
    monkeypatch.setattr(strict, "MOST_UNITS", 5)
    with pytest.raises(ConfigError, match=r"may be 5 units.*'user'.*sample of the units"):
        certify(LEVELS, folds, Rules(clip=4.0), reads)
    assert reads.count(folds.data) == 0
    with pytest.raises(ConfigError, match=r"a batch is a positive number.*0.*default"):
        stream(batch=0)
    rules = Rules((Promise(segment=("country", "DK")),))
    with pytest.raises(DataError, match=r"a segment needs rows.*'country'.*'DK'"):
        certify(LEVELS, split(stream(), "spring"), rules, Reads())
    with pytest.raises(DataError, match=r"every fold needs at least one row.*fold \d of 3"):
        split(stream(rows=TABLE[:4]), "spring")
    two = TABLE.with_columns(one=pl.int_range(pl.len()) % 2)
    with pytest.raises(ConfigError, match=r"logs of one round.*\[0, 1\]"):
        split(stream(replace(MAPPING, round="one"), rows=two), "spring")


def test_what_the_mapping_assumes_is_said() -> None:
    mapping = replace(MAPPING, propensity=None, estimated=EstimatedPropensities(("country",)))
    expected, streamed = both(Rules(clip=4.0), mapping)
    assert_same(asdict(expected), asdict(streamed))
    assert any("propensities were estimated" in words for words in streamed.assumptions)
