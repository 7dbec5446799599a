"""What is declared when a campaign is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from depsue.errors import ConfigError, FileError
from depsue.serving.settings import ServingSettings, declared


def test_what_is_declared_stays_declared(tmp_path: Path) -> None:
    assert declared(tmp_path, {"wait": 5.0}, begun=False).wait == 5.0
    assert declared(tmp_path, {"holdout": 0.2}, begun=True) == ServingSettings(
        wait=5.0, holdout=0.2
    )
    with pytest.raises(ConfigError, match="wait is declared once"):
        declared(tmp_path, {"wait": 6.0}, begun=True)
    (tmp_path / "serving.json").write_text("{")
    with pytest.raises(FileError, match="what was declared for serving"):
        declared(tmp_path, {}, begun=True)


def test_the_window_of_the_mapping_is_what_serving_waits(tmp_path: Path) -> None:
    assert declared(tmp_path, {}, begun=False, window=60.0).wait == 60.0
    assert declared(tmp_path, {"wait": 60.0}, begun=True, window=60.0).wait == 60.0
    with pytest.raises(ConfigError, match=r"window that the campaign's mapping.*--wait 5.*leave"):
        declared(tmp_path, {"wait": 5.0}, begun=False, window=60.0)
