"""The Upworthy archive, on made-up tests of its shape: loading, broken weeks, three rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from depsue.diagnostics import check_sample_ratio
from depsue.errors import ConfigError, DataError, FileError
from depsue.policies import Uniform
from depsue_research.cli import app
from depsue_research.upworthy import (
    UpworthyTests,
    UpworthyWorld,
    campaign_table,
    impressions_as_logs,
    read_upworthy,
)

WEEKS = (*range(201320, 201353), *range(201400, 201406))
BROKEN = range(201325, 201353)


def made_up(tests: int = 4, impressions: int = 3000) -> pl.DataFrame:
    """So many tests a week with 2 to 6 packages; in the broken weeks they are shown unevenly."""
    draw = np.random.default_rng(7)
    rows: list[dict[str, object]] = []
    taste = draw.normal(size=4)
    for week in WEEKS:
        for k in range(tests):
            size = int(draw.integers(2, 7))
            shares = np.full(size, 1 / size)
            if week in BROKEN:
                shares = draw.dirichlet(np.full(size, 20.0))
            shown = draw.multinomial(impressions * size, shares)
            text = draw.normal(size=(size, 4)).astype(np.float32)
            rate = 0.2 * np.exp(0.35 * text @ taste)
            for package in range(size):
                rows.append(
                    {
                        "test": f"{week}-{k}",
                        "package": len(rows),
                        "headline": f"Headline {len(rows)} of {week}",
                        "week": week,
                        "impressions": int(shown[package]),
                        "clicks": int(draw.binomial(shown[package], min(rate[package], 0.9))),
                        "embedding": text[package].tolist(),
                    }
                )
    return pl.DataFrame(rows)


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> UpworthyTests:
    folder = tmp_path_factory.mktemp("upworthy")
    made_up().write_parquet(folder / "packages.parquet")
    return read_upworthy(folder)


def test_a_file_is_read_as_tests_with_packages(tmp_path: Path) -> None:
    table = made_up(tests=1)
    alone = table.head(1).with_columns(test=pl.lit("alone"), package=pl.lit(9999, pl.Int64))
    pl.concat([table, alone]).sample(fraction=1, shuffle=True, seed=1).write_parquet(
        tmp_path / "packages.parquet"
    )
    read = read_upworthy(tmp_path)
    assert len(read) == len(WEEKS)  # a test of one package decides nothing
    assert read.sizes.min() >= 2
    assert read.impressions.sum() == table["impressions"].sum()
    first = read.package[read.starts[3] : read.starts[4]].tolist()
    assert first == table.filter(pl.col("test") == read.tests[3])["package"].to_list()
    assert np.allclose(read.text[0], table.filter(package=read.package[0])["embedding"][0])


def test_the_published_csv_is_read_with_hashed_words(tmp_path: Path) -> None:
    table = made_up(tests=1).drop("embedding", "package")
    names = {"test": "clickability_test_id", "week": "test_week"}
    table.rename(names).write_csv(tmp_path / "archive.csv")
    read = read_upworthy(tmp_path / "archive.csv")
    assert len(read) == len(WEEKS)
    assert read.text.shape == (len(table), 32)
    assert len(np.unique(read.text, axis=0)) > 10
    assert len(np.unique(read.package)) == len(table)


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is one CSV or Parquet file"):
        read_upworthy(tmp_path)
    (tmp_path / "packages.parquet").write_text("nothing")
    with pytest.raises(FileError, match="is one CSV or Parquet file"):
        read_upworthy(tmp_path)
    table = made_up(tests=1)
    table.drop("clicks").write_parquet(tmp_path / "packages.parquet")
    with pytest.raises(DataError, match="column 'clicks'"):
        read_upworthy(tmp_path)
    table.with_columns(clicks=pl.col("impressions") + 1).write_parquet(tmp_path / "p.parquet")
    with pytest.raises(DataError, match="at least as many impressions as clicks"):
        read_upworthy(tmp_path / "p.parquet")


def test_the_broken_weeks_are_found_and_no_others(tests: UpworthyTests) -> None:
    report = check_sample_ratio(impressions_as_logs(tests, 600, seed=0))
    (span,) = report.broken
    assert (span.first, span.last) == ("2013-W26", "2014-W01")  # 24 June to 5 January
    sound = tests.outside((201325, 201352))
    assert set(sound.week) == set(WEEKS) - set(BROKEN)
    assert check_sample_ratio(impressions_as_logs(sound, 600, seed=0)).ok


def test_rows_are_drawn_from_what_was_shown(tests: UpworthyTests) -> None:
    logs = impressions_as_logs(tests, 10**9, seed=0)  # more than there are: all of them
    assert len(logs) == tests.impressions.sum()
    assert np.array_equal(np.bincount(logs.action), tests.impressions)
    rate = np.bincount(logs.action, logs.reward) / tests.impressions
    assert np.abs(rate - tests.clicks / tests.impressions).max() < 0.03


@pytest.mark.parametrize("known", ["logged", "called"])
def test_a_world_of_tests_tells_the_truth(tests: UpworthyTests, known: str) -> None:
    world = UpworthyWorld(tests, new=2, known=known, seed=0)
    pi0, novel = world.logging_policy, world.catalogue.novel
    per_test = np.add.reduceat(novel.astype(int), world.tests.starts[:-1])
    assert set(per_test[world.tests.sizes > 2]) == {2}
    assert set(per_test[world.tests.sizes == 2]) == {1}
    logs = world.deploy(pi0, 30_000, round=0)
    assert not novel[logs.action].any()
    error = logs.reward.std() / np.sqrt(len(logs))
    assert abs(logs.mean_reward() - world.value(pi0)) < 4 * error
    even = Uniform(np.ones(len(novel), dtype=bool))
    shown = world.deploy(even, 30_000, round=1)
    assert novel[shown.action].mean() == pytest.approx(world.novelty(even), abs=0.01)
    assert world.novelty(pi0) == 0


def test_three_rounds_show_new_packages_and_keep_the_floor(tests: UpworthyTests) -> None:
    world = UpworthyWorld(tests, seed=0)
    lines = campaign_table(world, 8000)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row[0] for row in cells] == ["1", "2", "3"]
    assert {row[1] for row in cells} <= {"passed", "failed"}
    assert all(float(row[4]) > 0.95 for row in cells)
    assert max(float(row[3]) for row in cells) > 0.06


def test_the_command_finds_the_broken_weeks(tmp_path: Path) -> None:
    made_up().write_parquet(tmp_path / "packages.parquet")
    asked = ["upworthy", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*asked, "--each", "600", "--rows", "0"])
    assert result.exit_code == 0, result.output
    every, sound = result.output.split("without the broken weeks")
    assert "2013-W26 to 2014-W01 (z = +" in every
    assert "nothing refutes how often items were shown" in sound
    assert (tmp_path / "out" / "logs.parquet").is_file()


def test_worlds_that_cannot_be_are_refused(tests: UpworthyTests) -> None:
    with pytest.raises(ConfigError, match="some packages of each test must be new"):
        UpworthyWorld(tests, new=0, seed=0)
    with pytest.raises(ConfigError, match="called or logged"):
        UpworthyWorld(tests, known="chosen", seed=0)
