"""`depsue-research` as a user meets it, on a small data set made for it."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from depsue.errors import ConfigError, FileError
from depsue_research.arguments import seeds_of
from depsue_research.cli import app, main
from depsue_research.paper.cells import CellStore

USERS, MOVIES = 40, 30
ONE_WORLD = ("--only", "200 actions, beta 0")
RECIPE = """
experiment = "movielens"
official_data = false
levels = [-8, 8]
supported = 20
novel = 5
rows = 1500
validation_rows = 300
methods = ["opg_mean", "naive_safe", "depsue_2"]
[opg]
steps = 30
batch = 16
[safe_opg]
steps = 30
batch = 16
[rewards]
members = 2
hidden = [8]
max_epochs = 2
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder and a recipe."""
    draw = np.random.default_rng(1)
    users = [f"{u}::{'FM'[u % 2]}::25::{u % 21}::{u % 10}0000" for u in range(USERS)]
    movies = [f"{m}::Film {m} ({1950 + m})::Drama" for m in range(MOVIES)]
    ratings = [
        f"{u}::{m}::{draw.integers(1, 6)}" for u in range(USERS) for m in range(MOVIES) if u != m
    ]
    data = tmp_path / "ml"
    data.mkdir()
    for name, lines in (("users", users), ("movies", movies), ("ratings", ratings)):
        (data / f"{name}.dat").write_text("\n".join(lines), "latin-1")
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path


def call(folder: Path, *more: str, experiment: str = "movielens") -> list[str]:
    arguments = ["--data", str(folder / "ml"), "--recipe", str(folder / "small.toml")]
    out = ["--out", str(folder / "out"), "--workers", "1"]
    return ["reproduce", experiment, *arguments, *out, *more]


def test_it_runs_reports_and_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = CliRunner().invoke(app, call(folder, "--seeds", "1", "--levels", "8"))
    assert first.exit_code == 0, first.output
    assert "3 of 3 cells" in first.output and "index.html" in first.output
    out = folder / "out"
    lines = [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]
    assert [line["method"] for line in lines] == ["depsue_2", "naive_safe", "opg_mean"]
    assert not (out / "cells").exists()
    for name in ("index.html", "claims.md", "violations.md", "violations.csv", "over_k.png"):
        assert (out / name).stat().st_size > 100
    second = CliRunner().invoke(app, call(folder, "--seeds", "2"))
    assert second.exit_code == 0, second.output
    assert second.output.count("V(pi)/V(pi0)") == 2  # after the first seed, and at the end
    assert "12 of 12 cells" in second.output
    again = [json.loads(line) for line in (out / "cells.jsonl").read_text().splitlines()]
    assert len(again) == 12
    assert all(line in again for line in lines)  # those that were there were not run again
    words = call(folder, "--only-report")
    monkeypatch.setattr("sys.argv", ["depsue-research", *words])
    third = CliRunner().invoke(app, words)
    assert third.exit_code == 0, third.output
    assert "cells" not in third.output.splitlines()[0]
    # the command on the page tells nothing of the machine
    command = (
        "depsue-research reproduce movielens --data ml --recipe small.toml --out out --workers 1 "
        "--only-report"
    )
    assert command in (out / "index.html").read_text("utf-8")
    assert CellStore(out).record().command == command
    # and the report can be made again from the folder alone
    fourth = CliRunner().invoke(app, ["report", str(out), "--out", str(folder / "again")])
    assert fourth.exit_code == 0, fourth.output
    for path in (folder / "again").iterdir():
        assert path.read_bytes() == (out / path.name).read_bytes(), path.name


def test_it_says_what_data_is_missing(folder: Path) -> None:
    (folder / "ml" / "ratings.dat").unlink()
    outcome = CliRunner().invoke(app, call(folder))
    assert isinstance(outcome.exception, FileError)
    assert "no ratings.dat" in str(outcome.exception) and "grouplens" in str(outcome.exception)


def test_missing_data_is_one_message_and_exit_code_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["depsue-research", "reproduce", "movielens", "--quiet"])
    monkeypatch.setenv("DEPSUE_DATA", str(folder / "nowhere"))
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("depsue-research: MovieLens-1M needs") and "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--levels", "3"], "beta must be one of the recipe's"),
        (["--levels", "a"], "levels must be numbers"),
        (["--methods", "ppo"], "methods must be one of"),
        (["--seeds", "0"], "seeds must be"),
        (["--only-report"], "there must be a finished cell"),
        (["--preset", "fitted"], "--preset is for movielens without --recipe"),
        (["--address", "host:1"], "--address goes with --engine ray"),
        (["--levels", "8,8"], "levels must be different"),
        (["--seeds", "20000"], "at most 10,000"),
    ],
)
def test_mistakes_are_named(folder: Path, arguments: list[str], message: str) -> None:
    outcome = CliRunner().invoke(app, call(folder, *arguments))
    assert isinstance(outcome.exception, ConfigError) and message in str(outcome.exception)


def test_a_recipe_of_the_other_experiment_is_refused(folder: Path) -> None:
    outcome = CliRunner().invoke(app, call(folder, experiment="wiki10"))
    assert "the recipe must be of wiki10" in str(outcome.exception)


def test_seeds() -> None:
    assert seeds_of("3") == [0, 1, 2]
    assert seeds_of("3-5") == [3, 4, 5]
    assert seeds_of("4,0") == [4, 0]
    for wrong in ("", "a", "-3", "5-3", "1,1", "1,-2", "0,99999999999999999999", "0-99999999999"):
        with pytest.raises(ConfigError, match="seeds must be"):
            seeds_of(wrong)


def test_runs_that_differ_from_the_recipe_have_folders_of_their_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    common = call(folder, "--seeds", "1", "--levels", "8", "--methods", "naive_safe", "--quiet")
    without = [word for word in common if word not in ("--out", str(folder / "out"))]
    for more in ((), ("--rows", "900")):
        outcome = CliRunner().invoke(app, [*without, *more])
        assert outcome.exit_code == 0, outcome.output
    names = sorted(path.name for path in (folder / "results").iterdir())
    assert len(names) == 2 and all(name.startswith("small-") for name in names)


def test_a_report_needs_a_record_of_the_run(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(outcome.exception, FileError)
    assert "must have a record of its run" in str(outcome.exception)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["drift", "--rows", "500", "--runs", "1", "--shifts", "0"], 10),
        (["propensities", "--rows", "2000", "--runs", "1", "--other-runs", "0", *ONE_WORLD], 6),
        (["monitor", "--replications", "1", "--decisions", "500", "--late", "100"], 53),
    ],
)
def test_simulations_print_their_tables(arguments: list[str], lines: int) -> None:
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert len(outcome.output.splitlines()) == lines
    assert outcome.output.count("|---") > 0


def test_every_command_says_what_it_does() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert all(command.help for command in commands.values())
    guide = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text("utf-8")
    for name, command in commands.items():
        assert f"depsue-research {name}" in guide, name
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert f"`{parameter.opts[0]}`" in guide, (name, parameter.opts)
