"""`depsue check` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from depsue.cli.main import app
from depsue.errors import DepsueError, FileError


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(0)
    rows = 3000
    table = pl.DataFrame(
        {
            "arm": draw.integers(0, 5, rows),
            "revenue": draw.integers(-2, 9, rows).astype(float),
            "pscore": np.full(rows, 0.2),
            "x": draw.normal(size=rows),
        }
    )
    path = tmp_path_factory.mktemp("logs") / "logs.csv"
    table.write_csv(path)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["check", *(str(argument) for argument in arguments)])


def test_from_a_guess_to_a_declared_mapping(logs: Path, tmp_path: Path) -> None:
    first = run(logs, "--write-mapping", tmp_path / "m.toml")
    assert first.exit_code == 3
    assert "not usable" in first.output and "[reward] shift" in first.output
    text = (tmp_path / "m.toml").read_text()
    assert 'action = "arm"' in text
    again = run(logs, "--write-mapping", tmp_path / "m.toml")
    assert isinstance(again.exception, FileError) and "--force" in str(again.exception)
    declared = text.replace("r_max = 1.0", "r_max = 10.0") + "\n[reward]\nshift = 2.0\ncap = 10.0\n"
    (tmp_path / "m.toml").write_text(declared)
    second = run(logs, "--mapping", tmp_path / "m.toml", "--json")
    assert second.exit_code == 0
    report = json.loads(second.output)
    assert report["verdict"] == "ready"
    assert report["facts"]["rows"] == 3000
    assert report["assumptions"][0].startswith("rewards are min(revenue + 2, 10)")
    assert report["mapping"]["cap"] == 10.0


def test_r_max_may_be_declared_on_the_command_line(logs: Path) -> None:
    report = json.loads(run(logs, "--r-max", 9, "--json").output)
    assert "0 above r_max" in report["findings"][0]["value"]
    assert not any("r_max" in note for note in report["notes"])


def test_a_position_is_chosen(logs: Path, tmp_path: Path) -> None:
    table = pl.read_csv(logs).with_columns(click=1, slot=pl.int_range(3000) % 3).drop("revenue")
    table.write_parquet(tmp_path / "slates.parquet")
    assert "not supported yet" in run(tmp_path / "slates.parquet").output
    chosen = run(tmp_path / "*.parquet", "--position", 1)
    assert chosen.exit_code == 0 and "only rows with slot = 1 are used" in chosen.output


def test_estimated_propensities_are_marked(logs: Path, tmp_path: Path) -> None:
    pl.read_csv(logs).drop("pscore", "x").with_columns(revenue=1).write_csv(tmp_path / "bare.csv")
    assert run(tmp_path / "bare.csv").exit_code == 3
    out = tmp_path / "m.toml"
    result = run(tmp_path / "bare.csv", "--estimate-propensities", "--write-mapping", out)
    assert result.exit_code == 0 and "propensities were estimated" in result.output
    assert "estimated = true" in out.read_text()


def test_bad_usage_is_an_error_of_ours(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("[columns]")
    for arguments in (
        ("none.csv",),
        (logs, "none.csv"),
        (logs, "--mapping", tmp_path / "m.toml"),
        (logs, "--r-max", -1),
    ):
        assert isinstance(run(*arguments).exception, DepsueError), arguments


def test_exit_codes_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "depsue", "check", str(tmp_path / "none.csv")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("depsue: there must be a file to read")
    assert "Traceback" not in result.stderr
