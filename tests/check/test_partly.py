"""Mappings that are partly written by hand, and the skeleton where a guess fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from depsue.check import check_logs, read_logs, read_or_guess
from depsue.cli.main import app
from depsue.data.mapping import read_mapping
from depsue.data.reading import Source
from depsue.errors import ConfigError, DataError, DepsueError


@pytest.fixture
def odd(good: pl.DataFrame) -> pl.DataFrame:
    """Good logs, in which nobody can guess what was shown."""
    return good.rename({"item_id": "widget", "propensity": "chance"})


def written(folder: Path, text: str) -> Path:
    path = folder / "m.toml"
    path.write_text(text)
    return path


def test_what_is_not_written_is_guessed(odd: pl.DataFrame, tmp_path: Path) -> None:
    path = written(tmp_path, 'guess = true\nr_max = 2.0\n[columns]\naction = "widget"\n'
                             'propensity = "chance"\n')  # fmt: skip
    mapping, notes = read_or_guess(Source.of(odd), path)
    assert (mapping.action, mapping.propensity, mapping.reward) == ("widget", "chance", "click")
    assert (mapping.unit, mapping.time, mapping.r_max) == ("user_id", "timestamp", 2.0)
    assert mapping.numeric == ("age",) and list(mapping.categorical) == ["country"]
    assert not any("widget" in note or "r_max" in note for note in notes)
    report = check_logs(odd, None, path)
    assert report.usable and report.mapping == mapping
    with pytest.raises(ConfigError, match="a mapping here is whole"):
        read_mapping(path)


def test_what_is_written_stands(odd: pl.DataFrame, tmp_path: Path) -> None:
    path = written(tmp_path, 'guess = true\n[columns]\naction = "widget"\nreward = "age"\n'
                             '[contexts]\nnumeric = ["click"]\n')  # fmt: skip
    mapping, _ = read_or_guess(Source.of(odd), path)
    assert (mapping.reward, mapping.numeric, mapping.categorical) == ("age", ("click",), {})


@pytest.mark.parametrize(
    ("text", "error", "found"),
    [
        ('guess = 1\n[columns]\naction = "widget"', ConfigError, "true or false"),
        ('guess = true\n[columns]\naction = "?"', DataError, "the column must be in the file"),
        ("guess = true\n[columns]\naction = 3", ConfigError, "named by text"),
        ('guess = true\ncolumns = "x"', ConfigError, "named by text"),
        ('[columns]\nreward = "click"', ConfigError, "guess = true"),
    ],
)
def test_what_is_wrong_in_it_is_named(
    odd: pl.DataFrame, tmp_path: Path, text: str, error: Any, found: str
) -> None:
    with pytest.raises(error) as problem:
        read_or_guess(Source.of(odd), written(tmp_path, text))
    assert found in str(problem.value)


def test_a_skeleton_where_the_guess_fails(odd: pl.DataFrame, tmp_path: Path) -> None:
    logs, path = tmp_path / "logs.parquet", tmp_path / "m.toml"
    odd.write_parquet(logs)
    failed = CliRunner().invoke(app, ["check", str(logs), "--write-mapping", str(path)])
    assert isinstance(failed.exception, ConfigError) and "to fill in" in str(failed.exception)
    text = path.read_text()
    assert 'action = "?"' in text and 'reward = "click"' in text
    assert all(f'# "{name}"' in text for name in odd.columns)
    unfilled = CliRunner().invoke(app, ["check", str(logs), "--mapping", str(path)])
    assert isinstance(unfilled.exception, DataError) and "'?'" in str(unfilled.exception)
    filled = text.replace('action = "?"', 'action = "widget"')
    filled = filled.replace('propensity = "?"', 'propensity = "chance"')
    path.write_text(filled)
    done = CliRunner().invoke(app, ["check", str(logs), "--mapping", str(path)])
    assert done.exit_code == 0, done.output


def test_logs_and_items_as_they_come(good: pl.DataFrame, tmp_path: Path) -> None:
    items = pl.DataFrame({"sku": [10, 11, 12, 13, 14], "brand": ["a", "b", "a", "b", "a"]})
    rows = read_logs(good.to_pandas(), items.to_arrow(), id="sku")
    assert len(rows) == len(good) and rows.catalogue.novel.tolist() == [False] * 4 + [True]
    with pytest.raises(DepsueError):
        read_logs(good, 7)
