"""The worked example, on a made-up log of the same columns: 12 items, 2 positions."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from open_bandit import main, prepare, setting_of
from open_bandit_files import bts_counts, bts_shares, read_sample
from open_bandit_known import BOUNDS, Cell, study

from depsue.check import check_logs
from depsue.data.reading import open_source
from depsue.errors import DataError, FileError
from depsue.policies import ByItem

ITEMS, ROWS = 12, 3000


def rows_of(policy: str) -> pl.DataFrame:
    draw = np.random.default_rng(0 if policy == "random" else 1)
    shares = np.full(ITEMS, 1 / ITEMS) if policy == "random" else np.arange(1.0, ITEMS + 1) / 78
    item = draw.choice(ITEMS, size=ROWS, p=shares)
    start = np.datetime64("2020-01-01", "us")
    frame = {
        "": np.arange(ROWS),
        "timestamp": [f"{start + np.timedelta64(i, 's')}+00:00" for i in range(ROWS)],
        "item_id": item,
        "position": draw.integers(1, 3, ROWS),
        "click": (draw.random(ROWS) < 0.05 + 0.02 * (item % 5)).astype(int),
        "propensity_score": shares[item],
        "user_feature_0": draw.choice(["a", "b"], ROWS),
        "user_feature_1": draw.choice(["c", "d", "e"], ROWS),
        "user-item_affinity_0": np.zeros(ROWS),
    }
    return pl.DataFrame(frame)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    items = {
        "": np.arange(ITEMS),
        "item_id": np.arange(ITEMS),
        "item_feature_0": np.linspace(-1, 1, ITEMS),
        "item_feature_1": ["x", "y", "z"] * 4,
    }
    for policy in ("random", "bts"):
        folder = tmp_path / "data" / policy / "all"
        folder.mkdir(parents=True)
        rows_of(policy).write_csv(folder / "all.csv")
        pl.DataFrame(items).write_csv(folder / "item_context.csv")
    return tmp_path / "data"


def test_rows_of_new_items_are_dropped_and_the_rest_is_uniform(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    mappings = prepare(data, out, 2)
    logs, every = pl.read_csv(out / "logs.csv"), pl.read_csv(out / "logs-all.csv")
    items = pl.read_csv(out / "items.csv")
    assert items.filter("novel")["item_id"].to_list() == [7, 8, 9, 10, 11]
    assert every["item_id"].max() == 6
    assert np.allclose(every["propensity_score"].to_numpy(), 1 / 7, rtol=1e-12)
    assert set(logs["position"]) == {2}
    assert len(every) == len(rows_of("random").filter(pl.col("item_id") < 7))
    for name, mapping in mappings.items():
        report = check_logs(open_source(out / f"{name}.csv"), out / "items.csv", mapping)
        assert report.usable, report
    assert mappings["logs-all"].categorical["position"] == ("1", "2")


def test_a_policy_that_is_not_uniform_is_refused(data: Path) -> None:
    rows_of("bts").write_csv(data / "random" / "all" / "all.csv")
    with pytest.raises(DataError, match="each of the 12 items with probability 1/12"):
        read_sample(data)


def test_a_folder_without_the_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="must hold random/all and bts/all"):
        read_sample(tmp_path)


def test_bts_is_a_table_by_item(data: Path) -> None:
    sample = read_sample(data)
    assert np.allclose(bts_shares(sample, 1), np.arange(1, 13) / 78)  # p never changes here
    rows = sample.bts.filter(pl.col("position") == 1)
    assert bts_counts(sample, 1)[11] == pytest.approx((rows["item_id"] == 11).mean())


def test_the_known_world_earns_what_is_stated(data: Path, tmp_path: Path) -> None:
    prepare(data, tmp_path / "out", 1)
    setting = setting_of(data, tmp_path / "out", 1)
    world = setting.world(0.1, False, 3)
    assert world.q.mean() == pytest.approx(0.1, rel=1e-9)
    assert world.value(world.logging_policy) == pytest.approx(0.1, rel=1e-6)
    target = ByItem(setting.bts)
    assert world.value(target) == pytest.approx((world.q @ setting.bts).mean(), rel=1e-6)
    logs = world.deploy(target, 40_000, round=0)
    assert logs.reward.mean() == pytest.approx(world.value(target), abs=0.008)
    new = setting.world(0.1, True, 3)
    assert new.novelty(new.logging_policy) == 0.0
    assert new.value(target) == world.value(target)  # the same clicks, whatever was logged


def test_bounds_stay_below_the_truth(data: Path, tmp_path: Path) -> None:
    prepare(data, tmp_path / "out", 1)
    setting = setting_of(data, tmp_path / "out", 1)
    target = ByItem(setting.bts)
    world = setting.world(0.1, False, 0)
    cells = study("all", world, target, [1000, 8000], 25, seed=0)
    assert [(c.rows, c.bound) for c in cells] == [(n, b) for n in (1000, 8000) for b in BOUNDS]
    assert min(cell.p for cell in cells) > 1e-3
    assert all(
        few.ratio.mean() < many.ratio.mean() for few, many in zip(cells[:3], cells[3:], strict=True)
    )
    new = study("new", setting.world(0.1, True, 0), target, [8000], 5, seed=0)
    mass = float((world.q[:, :7] @ setting.bts[:7]).mean()) / new[0].truth
    assert all(cell.ratio.mean() < mass for cell in new)  # new items count as zero


def test_a_cell_counts_its_errors() -> None:
    cell = Cell("w", 10, "normal", 0.5, 0.4, np.array([0.3, 0.45, 0.5, 0.6]))
    assert (cell.above, cell.passed) == (1, 0.75)
    assert cell.p == pytest.approx(1 - 0.95**4)


def test_the_whole_example(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(["--data", str(data), "--out", str(out), "--rows", "600", "2500", "--replications", "2"])
    text = (out / "summary.md").read_text()
    assert text.strip() in capsys.readouterr().out
    assert "| rows | " in text and "| pi0 | 0.000 | 1.000 | 1.000 |" in text
    assert text.count("% clicks | ") == 3 * 2  # worlds x numbers of rows
    assert "over 2 logs" in text and "| world | rows | V(bts) | floor |" in text
    assert (out / "bounds.svg").read_text().startswith("<svg")
    assert (out / "campaigns" / "ledger.db").exists()
