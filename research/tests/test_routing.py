"""The study of routers, on a made-up table: reading, promises, every method, and the page."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from depsue.errors import ConfigError, DataError, FileError
from depsue_research.cli import app
from depsue_research.rivals import RivalSettings
from depsue_research.routing import METHODS, current_router, read_routing, run_cell

VW = find_spec("vowpalwabbit") is not None
INSTALLED = [method for method in METHODS if VW or not method.startswith("VW")]
SETTINGS = RivalSettings(rows=3000, rounds=1, floor=0.97, products=True, dimensions=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 prompts, four models that differ in price and in what they are good at."""
    out = tmp_path_factory.mktemp("routing")
    draw = np.random.default_rng(0)
    embedding = draw.normal(size=(120, 3)).astype(np.float32)
    scores = 1 / (1 + np.exp(-embedding @ draw.normal(size=(3, 4)) - np.arange(4) / 2))
    names = ["a", "b", "c", "d"]
    common = {"embedding": embedding.tolist()}
    dc = {"question": [f"question {k}" for k in range(120)], **common}
    dc |= {f"score:{name}": scores[:, k] for k, name in enumerate(names)}
    pl.DataFrame(dc).write_parquet(out / "dc.parquet")
    pareto = {"prompt": [f"prompt {k}" for k in range(120)], **common}
    pareto |= {f"reward:{name}": scores[:, k] for k, name in enumerate(names)}
    pareto |= {f"cost:{name}": draw.random(120) * 0.02 * (k + 1) for k, name in enumerate(names)}
    pl.DataFrame(pareto).write_parquet(out / "pareto.parquet")
    prices = {name: {"input_price": 0.2 * (k + 1)} for k, name in enumerate(names)}
    (out / "models.json").write_text(json.dumps(prices))
    return out


def test_tables_are_read_with_costs_as_shares_of_the_cap(folder: Path) -> None:
    dc, pareto = read_routing(folder, "dc"), read_routing(folder, "pareto")
    assert dc.models == ("a", "b", "c", "d") == pareto.models
    np.testing.assert_allclose(dc.costs[0], np.array([0.2, 0.4, 0.6, 0.8]) / 0.9)
    assert pareto.costs.max() == 1.0  # what costs more than the cap stops there
    assert 0.2 < (dc.prompts < 0.4).mean() < 0.6
    pi0 = current_router(dc, new=3).probabilities(dc.contexts)
    assert (pi0[:, 3] == 0).all() and (pi0[:, :3] > 0).all()


@pytest.mark.parametrize("method", INSTALLED)
def test_every_method_brings_in_a_new_model_and_is_judged(folder: Path, method: str) -> None:
    cell = run_cell(read_routing(folder, "dc"), 2, 100, SETTINGS, method, final=True)
    (done,) = cell["rounds"]
    assert 0 <= done["here"]["novelty"] <= 1
    assert done["here"]["quality"] > 0.5 and done["here"]["cost"] > 0.3
    if method in ("certified", "even"):
        assert done["here"]["novelty"] > 0
        assert done["here"]["quality"] >= 0.97 * 0.999
    asked = method in ("certified", "Safe OPG")
    assert (done["certified"] is not None) == asked


def test_vw_is_asked_for_where_it_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vowpalwabbit", None)
    routing = read_routing(folder, "dc")
    with pytest.raises(ConfigError, match="pip install vowpalwabbit"):
        run_cell(routing, 2, 100, SETTINGS, "VW cb_explore_adf", final=True)


def test_the_command_resumes_and_writes_a_page(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("depsue_research.routing.METHODS", ("even", "epsilon-greedy"))
    asked = ["routers", "--data", str(folder), "--out", str(tmp_path), "--seeds", "100-100"]
    first = CliRunner().invoke(app, [*asked, "--rows", "1000"])
    assert first.exit_code == 0, first.output
    assert len(first.output.splitlines()) == 16  # two methods, two tables of four models
    again = CliRunner().invoke(app, [*asked, "--rows", "1000"])
    assert again.exit_code == 0 and not again.output
    page = (tmp_path / "study.md").read_text()
    assert "| epsilon-greedy | 8 | - |" in page
    assert (tmp_path / "study.png").stat().st_size > 10_000


def test_files_that_are_something_else_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="the routing data needs"):
        read_routing(tmp_path, "dc")
    with pytest.raises(ConfigError, match="a table is one of"):
        read_routing(folder, "other")
    pl.DataFrame({"question": ["x"]}).write_parquet(tmp_path / "dc.parquet")
    (tmp_path / "models.json").write_text("{}")
    with pytest.raises(DataError, match="a column of scores"):
        read_routing(tmp_path, "dc")
