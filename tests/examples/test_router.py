"""The router's example, on few requests: two promises, three rounds, and files for the commands."""

from pathlib import Path

import pytest
from router import CAP, line, main, promises, router

from depsue.check import check_logs
from depsue.data.mapping import read_mapping
from depsue.data.reading import open_source
from depsue.policies import Uniform, load


def test_three_rounds_keep_the_floor_and_the_ceiling(tmp_path: Path) -> None:
    lines = main(4000, 0, tmp_path / "files")
    assert [text.split(",")[0] for text in lines[:3]] == ["round 1", "round 2", "round 3"]
    numbers = [[float(x) for x in text.split()[-6:] if x[0].isdigit()] for text in lines]
    for quality, cost, share in numbers[:3]:
        assert quality >= 0.97 and cost <= 1.1 and share > 0
    source = open_source(tmp_path / "files" / "logs.parquet")
    mapping = read_mapping(tmp_path / "files" / "mapping.toml")
    report = check_logs(source, tmp_path / "files" / "models.parquet", mapping)
    assert report.usable
    assert load(tmp_path / "files" / "pi0").n_actions == 5


def test_a_ceiling_on_cost_is_a_floor_on_what_is_saved() -> None:
    world = router(0)
    logs = world.deploy(world.logging_policy, 4000, round=0)
    quality, cost = promises(world, logs, quality=0.97, cost=1.1)
    assert quality.floor.ratio == 0.97
    assert cost.floor.ratio is not None
    saved = float(logs.column("saving").mean())
    dearest = (1 - cost.floor.ratio * saved) * CAP  # what the floor lets a request cost
    assert dearest == pytest.approx(1.1 * (1 - saved) * CAP, rel=1e-3)
    dear = Uniform(world.catalogue.ids == "large-120b")
    assert float(line("dear", world, dear).split("cost")[1].split()[0]) > 1.5
