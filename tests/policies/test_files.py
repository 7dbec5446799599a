"""Saved policies: every damage is noticed."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from depsue import artifacts
from depsue.data import Catalogue
from depsue.errors import FileError, PolicyError
from depsue.files import write_synced
from depsue.policies import Uniform, load, save
from depsue.policies.network import NetworkPolicy
from depsue.rewards import MlpRewardModel

CONTEXTS = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(NetworkPolicy.initial(3, 5, seed=0, hidden=(4,)), tmp_path / "policy")
    return tmp_path / "policy"


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_every_flipped_bit_is_refused(saved: Path) -> None:
    draw = np.random.default_rng(1)
    for path in files(saved):
        whole = path.read_bytes()
        for place in draw.integers(0, len(whole), 60):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(draw.integers(0, 8))
            path.write_bytes(damaged)
            with pytest.raises(FileError):
                load(saved)
        path.write_bytes(whole)
    load(saved)


def test_a_truncated_file_is_refused(saved: Path) -> None:
    for path in files(saved):
        whole = path.read_bytes()
        for size in (0, 1, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(FileError, match="damaged"):
                load(saved)
        path.write_bytes(whole)


def test_a_missing_file_is_refused(saved: Path) -> None:
    arrays = next(path for path in files(saved) if path.suffix == ".safetensors")
    arrays.unlink()
    with pytest.raises(FileError, match="must be there"):
        load(saved)
    with pytest.raises(FileError, match="with its manifest"):
        load(saved / "nowhere")


def test_another_version_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "FORMAT", 2)
    with pytest.raises(FileError, match="format 1 in .* written by depsue"):
        load(saved)


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    artifacts.write(tmp_path, family="policy", kind="oracle", settings={}, arrays={})
    with pytest.raises(FileError, match="Found: oracle"):
        load(tmp_path)


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    artifacts.write(tmp_path, family="policy", kind="network", settings={"layers": 3}, arrays={})
    with pytest.raises(FileError, match="must fit together"):
        load(tmp_path)


def test_a_policy_is_not_a_reward_model(saved: Path) -> None:
    with pytest.raises(FileError, match="must hold a reward model"):
        MlpRewardModel.load(saved)


def test_a_policy_knows_its_catalogue(saved: Path, tmp_path: Path) -> None:
    catalogue = Catalogue.of(["a", "b", "c", "d", "e"])
    other = Catalogue.of(["e", "d", "c", "b", "a"])
    save(load(saved), tmp_path / "known", catalogue=catalogue)
    load(tmp_path / "known", catalogue=catalogue)
    load(tmp_path / "known")
    for folder, given in ((tmp_path / "known", other), (saved, catalogue)):
        with pytest.raises(FileError, match="must have been saved for this catalogue"):
            load(folder, catalogue=given)


def test_writers_at_once_leave_a_whole_policy(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second writer finishes while the first is between its arrays and its manifest."""
    first, second = (NetworkPolicy.initial(3, 5, seed=s, hidden=(4,)) for s in (7, 8))
    real = write_synced

    def late(path: Path, content: bytes, **mode: bool) -> None:
        if path.name == artifacts.MANIFEST:
            monkeypatch.setattr("depsue.files.write_synced", real)
            save(second, saved)
        real(path, content, **mode)

    monkeypatch.setattr("depsue.files.write_synced", late)
    save(first, saved)
    np.testing.assert_array_equal(
        load(saved).probabilities(CONTEXTS), first.probabilities(CONTEXTS)
    )


@pytest.mark.parametrize(
    "body",
    [
        {"format": 1},
        {"format": 1, "family": "policy", "kind": "network", "settings": {}, "files": []},
        {"format": 1, "family": "policy", "kind": "network", "settings": 3, "files": {}},
        {"format": True, "family": "policy", "kind": "uniform", "settings": {}, "files": {}},
        {"format": 1, "family": "policy", "kind": "uniform", "settings": {}, "files": {"a": {}}},
    ],
)
def test_an_odd_manifest_is_an_error_not_a_traceback(body: dict[str, Any], tmp_path: Path) -> None:
    sha256 = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    whole = {"manifest": body, "sha256": sha256}
    (tmp_path / "manifest.json").write_text(json.dumps(whole))
    with pytest.raises(FileError):
        load(tmp_path)


def test_what_is_not_a_policy_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="save takes a policy. Found: 3"):
        save(3, tmp_path)  # type: ignore[arg-type]


def test_saving_again_replaces_and_leaves_nothing_behind(saved: Path) -> None:
    other = NetworkPolicy.initial(3, 5, seed=9, hidden=(4,))
    save(other, saved)
    np.testing.assert_array_equal(
        load(saved).probabilities(CONTEXTS), other.probabilities(CONTEXTS)
    )
    assert len(files(saved)) == 2


def test_a_crash_before_the_manifest_keeps_the_old_policy(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load(saved).probabilities(CONTEXTS)
    real = write_synced

    def crash(path: Path, content: bytes, **mode: bool) -> None:
        if path.name == artifacts.MANIFEST:
            raise KeyboardInterrupt
        real(path, content, **mode)

    monkeypatch.setattr("depsue.files.write_synced", crash)
    with pytest.raises(KeyboardInterrupt):
        save(NetworkPolicy.initial(3, 5, seed=9, hidden=(4,)), saved)
    monkeypatch.undo()
    np.testing.assert_array_equal(load(saved).probabilities(CONTEXTS), before)


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="must be writable"):
        save(Uniform(np.ones(2, dtype=bool)), tmp_path / "file")


def test_the_manifest_is_plain_json(saved: Path) -> None:
    whole = json.loads((saved / "manifest.json").read_text())
    assert whole["manifest"]["kind"] == "network"
    assert list(whole["manifest"]["files"]) == [
        path.name for path in files(saved) if path.suffix == ".safetensors"
    ]
