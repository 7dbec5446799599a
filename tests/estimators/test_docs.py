from __future__ import annotations

import re
from pathlib import Path

import pytest

import depsue.estimators

PAGE = (Path(__file__).parents[2] / "docs" / "estimators.md").read_text()


def test_the_example_runs_and_shows_who_overstates(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(code, "docs/estimators.md", "exec"), {"__name__": "docs"})
    truth, ips, *others = capsys.readouterr().out.splitlines()
    value = float(truth.split()[-1])
    assert float(ips.split()[0]) == pytest.approx(value, abs=0.03)
    assert len(others) == 3
    assert all(float(line.split()[0]) > value + 0.03 for line in others)


def test_every_estimator_is_on_the_page() -> None:
    for name in depsue.estimators.__all__:
        assert f"`{name}" in PAGE, name
