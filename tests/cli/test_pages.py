"""`depsue pages` as a user runs it, on the simulated shop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from depsue.cli.main import app
from depsue.data.mapping import LogMapping, PageColumns, write_mapping
from depsue.data.writing import write_items
from depsue.errors import ConfigError
from depsue.shop import Shop, ShopSettings

SETTINGS = ShopSettings(
    requests=80, users=30, items=40, new=5, retrieved=10, d=2, slots=3, decided=2, rounds=2
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages")
    shop = Shop(SETTINGS, seed=3)
    shop.page_rows(shop.logging_policy, 8000, round=0).write_parquet(out / "pages.parquet")
    write_items(shop.catalogue, out / "items.parquet")
    mapping = LogMapping(
        action="item",
        reward="clicked",
        propensity="propensity",
        time="time",
        position="position",
        candidates="candidates",
        keep_position=2,
        pages=PageColumns("page"),
        numeric=("x0", "x1", "e0@1"),
        r_max=3.0,
    )
    write_mapping(mapping, out / "m.toml")
    return out


def run(folder: Path, *arguments: object) -> Result:
    names = [str(folder / "pages.parquet"), str(folder / "items.parquet")]
    return CliRunner().invoke(app, ["pages", *names, *map(str, arguments)])


def test_a_small_spill_over_buys_exploration(folder: Path, tmp_path: Path) -> None:
    asked = ("--mapping", folder / "m.toml", "--spill", 0.05, "--reads", tmp_path / "reads.json")
    first = run(folder, *asked)
    assert first.exit_code == 0, first.output
    assert "spill-over certificate: nu 0." in first.output
    assert "errs at most 0.05 of the time" in first.output
    again = run(folder, *asked)
    assert isinstance(again.exception, ConfigError)
    assert "are read by one verdict" in str(again.exception)
    counted = ("--json", "--retries", "--floor", 0.9, "--highest", 0.3, "--delta", 0.1)
    other = run(folder, *asked[:4], "--reads", tmp_path / "other.json", *counted)
    certificate = json.loads(other.output)
    assert certificate["nu"] > 0.15
    assert certificate["delta"] == 0.05  # the first of several attempts
    assert certificate["rules"]["rho"] == 0.9


def test_a_mapping_without_pages_is_refused(folder: Path, tmp_path: Path) -> None:
    reads = ("--spill", 0.05, "--reads", tmp_path / "reads.json")
    assert "pages need a mapping" in str(run(folder, *reads).exception)
    text = (folder / "m.toml").read_text().replace('[pages]\npage = "page"\n', "")
    (tmp_path / "m.toml").write_text(text.replace(', "e0@1"', ""))
    refused = run(folder, *reads, "--mapping", tmp_path / "m.toml")
    assert "must say which rows form a page" in str(refused.exception)
