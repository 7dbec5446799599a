"""The command that holds PONA against its published shape, on one small world of either kind."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from depsue_research.cli import app


def test_kappa_steers_the_share_and_the_command_resumes(tmp_path: Path) -> None:
    asked = ["pona", "--seeds", "101-101", "--rows", "6000", "--out", str(tmp_path)]
    first = CliRunner().invoke(app, asked)
    assert first.exit_code == 0, first.output
    cells = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [(cell["world"], cell["order"]) for cell in cells] == [
        ("additive", 1),
        ("pairs", 1),
        ("pairs", 2),
    ]
    for cell in cells:
        assert cell["novelty"][0] < 0.02 < cell["novelty"][-1]
        assert max(cell["value"]) <= cell["best_value"] + 1e-5
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 0 and not again.output
    assert "| additive | 1 | 1 |" in (tmp_path / "shape.md").read_text()
    assert (tmp_path / "shape.png").stat().st_size > 10_000
