"""The demo as a user runs it, in small."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from depsue import __version__, progress
from depsue.cli.main import app
from depsue.progress import Watch


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("demo") / "report"
    arguments = ["demo", "--out", str(out), "--rows", "6000", "--steps", "60", "--quiet"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output, out


def test_the_table_has_every_method_and_truth_beside_estimate(run: tuple[str, Path]) -> None:
    output, _ = run
    for method in ("logging policy pi0", "Naive Safe Exploration", "OPG (naive)", "Safe OPG"):
        assert method in output
    assert all(f"DEPSUE {k} of 3" in output for k in (1, 2, 3))
    for heading in ("believed", "bound", "need", "true value", "novelty", "safe"):
        assert heading in output
    assert "report.html" in output


def test_it_ends_with_how_to_see_the_campaign(run: tuple[str, Path]) -> None:
    output, out = run
    line = output.strip().splitlines()[-1].split()
    home = out / "shop" / "campaigns"
    assert (
        line[0].endswith("depsue")
        and line[1] == "serve"
        and line[line.index("--home") + 1] == str(home)
    )
    status = CliRunner().invoke(app, ["campaign", "status", line[2], "--home", str(home), "--json"])
    state = json.loads(status.output)
    assert state["round"] == 2 and state["deployments"][-1]["what"] == "certified"


def test_the_report_is_one_page_that_needs_nothing_else(run: tuple[str, Path]) -> None:
    _, out = run
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "<script" not in page and "<link" not in page
    loads = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', page)
    assert loads == []
    assert (out / "overview.png").stat().st_size > 5000


def test_the_json_is_the_table(run: tuple[str, Path]) -> None:
    output, out = run
    whole = json.loads((out / "demo.json").read_text())
    assert [m["method"] for m in whole["methods"]][0] == "logging policy pi0"
    for method in whole["methods"]:
        assert f"{method['value']:.3f}" in output
        assert method["bound"] is None or f"{method['bound']:.3f}" in output
        assert method["safe"] == (method["average"] >= whole["floor"] - 1e-12)
    cautious = whole["methods"][1]
    assert cautious["novelty"] == pytest.approx(0.05)
    assert cautious["value"] >= 0.95


def test_help_names_the_command_and_its_options() -> None:
    output = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "120"}).output
    for option in ("--out", "--seed", "--rows", "--steps", "--quiet"):
        assert option in output


def test_version_and_bad_options() -> None:
    assert __version__ in CliRunner().invoke(app, ["--version"]).output
    bad = CliRunner().invoke(app, ["demo", "--rows", "7"])
    assert bad.exit_code == 2 and "3000" in bad.output


def test_an_error_is_one_message_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [
        sys.executable,
        "-m",
        "depsue",
        "demo",
        "--out",
        str(tmp_path / "file"),
        "--rows",
        "3000",
        "--steps",
        "1",
        "--quiet",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "depsue: the folder for the report must be writable" in done.stderr


@pytest.mark.parametrize("task", ["OPG (naive)", "Safe OPG", "DEPSUE 1/3", "reward model"])
def test_an_interrupt_ends_the_demo(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def stop(show: bool) -> Iterator[Watch]:
        def watch(name: str, done: int, total: int, words: str) -> None:
            if name == task:
                raise KeyboardInterrupt

        yield watch

    monkeypatch.setattr(progress, "bars", stop)
    arguments = ["demo", "--out", str(tmp_path / "r"), "--rows", "3000", "--steps", "20"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 130
    assert "interrupted; no report was written" in result.output
    assert not (tmp_path / "r" / "report.html").exists()
