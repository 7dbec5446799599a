"""Wiki10: both layouts are read and checked; labels become actions; the classifier learns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from depsue.errors import ConfigError, DataError, FileError
from depsue.world import MeanRewards, RewardTable
from depsue_research import wiki10
from depsue_research.wiki10 import (
    LabelRewards,
    Wiki10,
    documents_of,
    principal_components,
    read_wiki10,
    wiki10_setting,
)


def made_up(n: int = 600, n_labels: int = 60) -> tuple[sparse.csr_matrix, Any]:
    """Documents of six topics; labels of the topic hold often, others seldom."""
    draw = np.random.default_rng(2)
    topic = draw.integers(0, 6, n)
    own = np.arange(n_labels)[None] % 6 == topic[:, None]
    labels = draw.random((n, n_labels)) < np.where(own, 0.5, 0.02)
    labels[:, 0] = True  # the commonest label
    embeddings = np.eye(6)[topic] @ draw.normal(size=(6, 32)) + 0.3 * draw.normal(size=(n, 32))
    return sparse.csr_matrix(labels.astype(np.int32)), embeddings.astype(np.float16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    labels, embeddings = made_up()
    sparse.save_npz(tmp_path / "Y.csr.npz", labels)
    np.save(tmp_path / "title_minilm_f16.npy", embeddings)
    return tmp_path


@pytest.fixture
def data(folder: Path) -> Wiki10:
    return read_wiki10(folder, official=False)


def test_both_layouts_say_the_same(folder: Path, tmp_path_factory: Any, data: Wiki10) -> None:
    labels, embeddings = made_up()
    other = tmp_path_factory.mktemp("split")
    sparse.save_npz(other / "Y.trn.npz", labels[:400])
    sparse.save_npz(other / "Y.tst.npz", labels[400:])
    np.save(other / "embeddings.npy", embeddings.astype(np.float32))
    again = read_wiki10(other, official=False)
    assert data.of_titles and not again.of_titles
    for name in ("starts", "labels", "embeddings"):
        np.testing.assert_array_equal(getattr(data, name), getattr(again, name))
    np.testing.assert_array_equal(data.labels, labels.indices)
    assert data.n_labels == again.n_labels == 60


def test_stored_zeros_and_repeats_are_not_labels(folder: Path) -> None:
    matrix = sparse.csr_matrix((600, 60), dtype=np.int32)
    matrix.indptr = np.append(0, np.full(600, 4))
    matrix.indices, matrix.data = np.array([7, 3, 5, 3]), np.array([1, 2, 0, 1])
    sparse.save_npz(folder / "Y.csr.npz", matrix)
    assert read_wiki10(folder, official=False).labels.tolist() == [3, 7]


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"no Y\.trn\.npz.*embed the texts.*DEPSUE_DATA"):
        read_wiki10(tmp_path)


def test_other_counts_than_the_published_ones_are_refused(folder: Path) -> None:
    with pytest.raises(FileError, match="the documents must number 20,762. Found: 600"):
        read_wiki10(folder)


def test_damaged_files_are_refused(folder: Path) -> None:
    good = np.load(folder / "title_minilm_f16.npy")
    np.save(folder / "title_minilm_f16.npy", good[:-1])
    with pytest.raises(FileError, match="one row of finite numbers for each of 600 documents"):
        read_wiki10(folder, official=False)
    (folder / "title_minilm_f16.npy").write_bytes(b"not numpy")
    with pytest.raises(FileError, match="as numpy.save writes it"):
        read_wiki10(folder, official=False)
    whole = (folder / "Y.csr.npz").read_bytes()
    for damaged in (b"", b"not numpy either", whole[: len(whole) // 2], whole[:-40]):
        (folder / "Y.csr.npz").write_bytes(damaged)
        with pytest.raises(FileError, match="as scipy.sparse.save_npz writes it"):
            read_wiki10(folder, official=False)
    (folder / "Y.csr.npz").write_bytes(b"not numpy either")
    with pytest.raises(FileError, match="as scipy.sparse.save_npz writes it"):
        read_wiki10(folder, official=False)
    sparse.save_npz(folder / "Y.csr.npz", made_up()[0].tocoo())
    with pytest.raises(FileError, match="scipy.sparse.save_npz"):
        read_wiki10(folder, official=False)


def test_an_array_of_objects_is_not_unpickled(folder: Path) -> None:
    np.save(folder / "title_minilm_f16.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FileError, match="as numpy.save writes it"):
        read_wiki10(folder, official=False)


def test_the_commonest_labels_go_and_the_most_frequent_stay(
    data: Wiki10, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiki10, "COMMONEST", 500)
    documents = documents_of(data, 20)
    frequency = np.bincount(data.labels, minlength=60)
    assert 0 not in documents.labels  # it holds for all 600
    others = np.delete(frequency, 0)
    assert sorted(frequency[documents.labels]) == sorted(others)[-20:]
    assert np.diff(documents.starts).min() >= 1
    starts, actions = documents.some(np.array([3, 1]))
    assert (
        actions[starts[1] :].tolist()
        == documents.actions[documents.starts[1] : documents.starts[2]].tolist()
    )
    with pytest.raises(DataError, match="100 labels that hold"):
        documents_of(data, 100)


def test_principal_components_keep_the_largest_variances() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(500, 6)) * np.array([0.1, 5, 1, 3, 0.2, 2]) + 7
    scores = principal_components(rows, 3)
    assert scores.std(axis=0) == pytest.approx([1, 3 / 5, 2 / 5], rel=0.1)
    np.testing.assert_allclose(np.corrcoef(scores.T), np.eye(3), atol=1e-5)
    assert abs(np.corrcoef(scores[:, 0], rows[:, 1])[0, 1]) > 0.999


def test_the_classifier_gives_logging_policies_better_than_uniform(data: Wiki10) -> None:
    documents = documents_of(data, 50)
    setting = wiki10_setting(documents, seed=3, supported=40)
    assert len(setting.train) == round(0.8 * len(documents.contexts))
    assert setting.catalogue.novel.sum() == 10
    uniform = 0.2 + 0.6 * len(documents.actions) / len(documents.contexts) / 50
    values = [setting.worlds(epsilon)[1] for epsilon in (0.8, 0.5, 0.2)]
    poor, medium, good = (world.value(world.logging_policy) for world in values)
    assert uniform < poor < medium < good
    test = values[0]
    assert test.best_value() == pytest.approx(0.8)
    logs = test.deploy(test.logging_policy, 20_000, round=0)
    error = logs.reward.std() / np.sqrt(len(logs))
    assert abs(logs.mean_reward() - poor) < 4 * error


STARTS = np.array([0, 2, 2, 5, 6])
LABELS = np.array([1, 4, 0, 2, 3, 4])
NOVEL = np.array([False, False, False, True, True])


def labels_and_table() -> tuple[MeanRewards, MeanRewards]:
    labels = LabelRewards(STARTS, LABELS, 5, hit=0.8, miss=0.2)
    table = np.full((4, 5), 0.2)
    for context in range(4):
        table[context, LABELS[STARTS[context] : STARTS[context + 1]]] = 0.8
    return labels, RewardTable(table)


def test_labels_agree_with_their_table() -> None:
    labels, table = labels_and_table()
    assert labels.shape == table.shape == (4, 5)
    np.testing.assert_array_equal(labels.q, table.q)
    context, action = np.divmod(np.arange(20), 5)
    np.testing.assert_array_equal(labels.pairs(context, action), table.pairs(context, action))
    np.testing.assert_array_equal(labels.best(), table.best())
    np.testing.assert_allclose(labels.best_within(NOVEL), table.best_within(NOVEL))


@pytest.mark.parametrize("piece", [slice(0, 4), slice(1, 3), slice(3, 4)])
def test_expected_rewards_agree_with_the_table(piece: slice) -> None:
    labels, table = labels_and_table()
    pi = np.random.default_rng(1).dirichlet(np.ones(5), piece.stop - piece.start)
    np.testing.assert_allclose(labels.expected(piece, pi), table.expected(piece, pi))


def test_best_shares_by_hand() -> None:
    labels, _ = (
        labels_and_table()
    )  # contexts: one of two novel; no label, so all tie; one of three; one
    np.testing.assert_allclose(labels.best_within(NOVEL), [1 / 2, 2 / 5, 1 / 3, 1])


def test_a_hit_is_not_below_a_miss() -> None:
    with pytest.raises(ConfigError, match="a hit's not below"):
        LabelRewards(STARTS, LABELS, 5, hit=0.1, miss=0.2)
