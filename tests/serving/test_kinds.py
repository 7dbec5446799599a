"""What the reader of logs would refuse is refused when it is asked, and never blocks a round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from sqlalchemy import create_engine, text
from tests.serving.asgi import caller
from tests.serving.conftest import Clock, Log, seeded_chance
from tests.serving.model import SERVED

from depsue import Uniform
from depsue.campaigns import Campaign, create
from depsue.data.logs import joined
from depsue.data.mapping import LogMapping
from depsue.errors import DataError
from depsue.serving.deciding import check_request
from depsue.serving.exporting import export_served
from depsue.serving.kinds import Kind, as_logged, logged_column
from depsue.serving.messages import Decide
from depsue.serving.service import Service
from depsue.serving.settings import ServingSettings

MAPPING = LogMapping(
    action="shown",
    reward="click",
    propensity="p",
    numeric=("x",),
    segments=("country",),
    unit="user",
    candidates="list",
    probabilities="of",
    version="ranker",
)
KINDS: dict[str, Kind] = {"user": "whole", "country": "text"}
OTHERS = replace(SERVED, mapping=MAPPING, kinds=KINDS)


def asked(unit: Any = 7, country: Any = "de", x: float = 0.5, **more: Any) -> Decide:
    return Decide({"x": x, "country": country}, unit=unit, **more)


def test_a_value_is_brought_to_the_kind_of_the_logs() -> None:
    assert as_logged("7", "whole") == as_logged(7.0, "whole") == as_logged(7, "whole") == 7
    assert as_logged(7, "text") == "7" and as_logged(True, "text") == "true"
    for value, kind in (("abc", "whole"), (7.5, "whole"), (2**63, "whole"), ("7", "number")):
        assert as_logged(value, kind) is None  # type: ignore[arg-type]
    assert as_logged("a\0b", "text") is as_logged(None, None) is as_logged(1e300, "number") is None
    assert logged_column([3, "de"], None) == ["3", "de"] and logged_column([3, 4], None) == [3, 4]


@pytest.mark.parametrize(
    ("wrong", "column"),
    [
        ({"unit": "abc"}, "user"),
        ({"unit": "a\0b"}, "user"),
        ({"country": None}, "country"),
        ({"country": "d\0e"}, "country"),
        ({"x": -3.4e38}, "x"),
        ({"chosen": "i0", "chosen_probability": 1e-7}, "chosen_probability"),
        ({"chosen": "i0", "chosen_probability": 5e-324}, "chosen_probability"),
    ],
)
def test_what_the_reader_would_refuse_is_refused_at_once(wrong: Any, column: str) -> None:
    with pytest.raises(DataError) as caught:
        check_request(asked(**wrong), OTHERS)
    assert caught.value.column == column and caught.value.found and caught.value.cure
    check_request(asked(), OTHERS)
    check_request(asked(unit="7", country=49, chosen="i0", chosen_probability=1e-6), OTHERS)


def test_an_id_has_no_nul() -> None:
    for name in ("unit", "chosen"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(b'{"%s": "a\\u0000b"}' % name.encode(), type=Decide)


@pytest.fixture
def begun(tmp_path: Path) -> Campaign:
    """A campaign whose logs have one row a unit, pi0 called, and pi0 deployed in round 1."""
    rng, n = np.random.default_rng(0), 400
    lists = [sorted(rng.choice(6, 3, replace=False).tolist()) for _ in range(n)]
    pl.DataFrame(
        {
            "x": rng.normal(size=n),
            "country": rng.choice(["de", "fr"], n),
            "user": np.arange(n),
            "shown": [int(rng.choice(each)) for each in lists],
            "click": (rng.random(n) < 0.4).astype(float),
            "p": np.full(n, 1 / 3),
            "list": lists,
            "of": [[1 / 3] * 3] * n,
            "ranker": ["may"] * n,
        }
    ).write_parquet(tmp_path / "may.parquet")
    items = {"id": list(range(8)), "novel": [k > 5 for k in range(8)], "f": np.arange(8.0)}
    pl.DataFrame(items).write_parquet(tmp_path / "items.parquet")
    pi0, home = Uniform(np.arange(8) < 6), tmp_path / "campaigns"
    files = tmp_path / "may.parquet", tmp_path / "items.parquet"
    campaign = create("spring", *files, pi0=pi0, mapping=MAPPING, by="ana", home=home)
    campaign.rollback()
    return campaign


def test_one_row_never_blocks_a_round(begun: Campaign, tmp_path: Path, log: Log) -> None:
    """Honest users who come back, callers who bring less, and rows of an earlier version."""
    clock, rng = Clock(), np.random.default_rng(1)
    service = Service(
        begun, ServingSettings(wait=1.0), clock=clock, refresh=3600.0, chance=seeded_chance()
    )
    service.start()
    assert any("first decision" in str(line.get("found")) for line in log.lines)
    call = caller(service, tmp_path / "campaigns")
    requests = [
        {
            "context": {"x": float(rng.normal()), "country": "de"},
            "candidates": [0, 1, 2],
            "unit": 1000 + k % 500 if k % 2 else str(1000 + k % 500),  # 500 users, 100 come back
            **({"probabilities": [0.5, 0.25, 0.25], "version": "may"} if k % 3 else {}),
        }
        for k in range(600)
    ]
    made = call.post("/v1/decide/batch", {"decisions": requests})
    assert made.status == 200
    rows, _ = service.reader.read(limit=1)
    row = rows[0]._asdict()
    service.close()
    _as_an_earlier_version_stored(service, row)
    clock.advance(10.0)
    found = export_served(begun, None)
    assert (found.rows, found.again, found.unreadable) == (500, 100, 4)
    assert found.decisions == 604 and found.excused == 104
    seen = begun.observe(found.path, mapping=found.mapping, decisions=found.decisions, excused=104)
    assert seen.rows == 500
    both = joined([begun.logs(0), begun.logs(1)])
    assert both.units is not None and both.units.dtype == np.int64
    assert set(both.columns["country"].tolist()) == {"de", "fr"}


def _as_an_earlier_version_stored(service: Service, row: dict[str, Any]) -> None:
    """Rows that were accepted before requests were held to the reader's rules."""
    wrong = [
        {"unit": '"abc"'},
        {"context": '{"country":null,"x":0.5}'},
        {"context": '{"country":"a\\u0000b","x":0.5}'},
        {"context": '{"country":"de","x":3.4e38}'},
    ]
    engine = create_engine(f"sqlite:///{service.store.name}")
    with engine.begin() as connection:
        for k, change in enumerate(wrong):
            values = {**row, **change, "id": f"{k:032x}", "seq": 10_000 + k}
            names = ", ".join(f'"{name}"' for name in values)
            marks = ", ".join(f":{name}" for name in values)
            connection.execute(
                text(f"INSERT INTO serving_decisions ({names}) VALUES ({marks})"), values
            )
    engine.dispose()
