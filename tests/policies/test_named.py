"""What --pi0 means: each way of naming a policy, saved and loaded, and each refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from onnx import numpy_helper, parser

from depsue.data import Candidates, Catalogue, LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import read_from
from depsue.diagnostics.drawn_by import require_drawn_by
from depsue.errors import ConfigError, DataError, DepsueError, FileError, PolicyError
from depsue.policies import Mixture, NamedPolicy, Uniform, known_by, load, named_policy, save
from depsue.policies.simple import ByItem
from depsue.testing.policies import PolicyConformance

IDS = ["a", "b", "new", "c"]
CATALOGUE = Catalogue.of(IDS, novel=["new"])
NOVEL = np.array([False, False, True, False])
CONTEXTS = np.array([[0.1, 1.0], [0.2, 2.0], [0.3, 3.0]], dtype=np.float32)
PI = np.array([[0.5, 0.3, 0.0, 0.2], [0.1, 0.6, 0.0, 0.3], [0.25, 0.25, 0.0, 0.5]])
TABLE = 0.7, 0.2, 0.0, 0.1


class TestByItem(PolicyConformance):
    policy, contexts = ByItem(TABLE), CONTEXTS


def logs(propensities: Any, actions: Any, context: Any = 0, rounds: Any = None) -> LoggedData:
    n = len(actions)
    return LoggedData.from_arrays(
        contexts=CONTEXTS,
        context_rows=np.broadcast_to(context, n),
        actions=actions,
        rewards=np.zeros(n),
        propensities=propensities,
        catalogue=CATALOGUE,
        r_max=1.0,
        rounds=rounds,
    )


def by_context(n: int = 60) -> LoggedData:
    """Logs that were drawn from PI."""
    draw = np.random.default_rng(3)
    context = np.arange(n) % 3
    actions = np.array([draw.choice(4, p=PI[row]) for row in context])
    return logs(PI[context, actions], [IDS[a] for a in actions], context)


def onnx_file(path: Path, columns: int = 3, softmax: bool = True) -> np.ndarray[Any, Any]:
    """A model of two features; returns its weights."""
    weights = np.random.default_rng(9).normal(size=(2, columns)).astype(np.float32)
    end = "y = Softmax<axis = 1>(s)" if softmax else "y = Identity(s)"
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> ours (float[N, 2] x) => '
        f"(float[N, {columns}] y) {{ s = MatMul(x, w) {end} }}"
    )
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path.write_bytes(proto.SerializeToString())
    return weights


def softmax(scores: Any) -> Any:
    odds = np.exp(np.asarray(scores, dtype=np.float64))
    return odds / odds.sum(axis=1, keepdims=True)


def wide(values: Any = PI, **changed: Any) -> pl.DataFrame:
    """A table: two context columns, a column per item."""
    columns = {"x": CONTEXTS[:, 0], "y": CONTEXTS[:, 1]}
    items = {item: values[:, place] for place, item in enumerate(IDS)}
    return pl.DataFrame({**columns, **items, **changed})


def same_after_saving(named: NamedPolicy, expected: Any, folder: Path) -> None:
    """The policy is what is expected, sums to 1, and comes back from its file."""
    pi = named.policy.probabilities(CONTEXTS)
    np.testing.assert_allclose(pi, np.broadcast_to(expected, (3, 4)), rtol=1e-5, atol=1e-9)
    save(named.policy, folder / "pi0", catalogue=CATALOGUE)
    again = load(folder / "pi0", catalogue=CATALOGUE)
    np.testing.assert_array_equal(again.probabilities(CONTEXTS), pi)
    by_folder = named_policy(folder / "pi0", CATALOGUE)
    np.testing.assert_array_equal(by_folder.policy.probabilities(CONTEXTS), pi)
    assert named.notes and all(isinstance(note, str) for note in named.notes)


def test_uniform_is_even_over_the_supported(tmp_path: Path) -> None:
    named = named_policy("uniform", CATALOGUE)
    same_after_saving(named, [1 / 3, 1 / 3, 0, 1 / 3], tmp_path)
    assert "3 supported items" in named.notes[0]


def test_logged_is_the_table_of_propensities(tmp_path: Path) -> None:
    p = np.array([0.7, 0.2, 0.1, 0.7 * (1 + 5e-7), 0.1])
    named = named_policy("logged", CATALOGUE, logs=logs(p, ["a", "b", "c", "a", "c"]))
    same_after_saving(named, TABLE, tmp_path)
    assert len(named.notes) == 1 and "approximation if the real pi0 looked" in named.notes[0]
    require_drawn_by(named.policy, logs(p, ["a", "b", "c", "a", "c"]))


def test_logged_reads_the_rows_of_pi0_only() -> None:
    mixed = logs([0.7, 0.2, 0.1, 0.4, 0.3], ["a", "b", "c", "a", "new"], rounds=[0, 0, 0, 1, 1])
    pi = named_policy("logged", CATALOGUE, logs=mixed).policy.probabilities(CONTEXTS)
    np.testing.assert_allclose(pi[0], TABLE)
    with pytest.raises(DataError, match="rows of round 0"):
        named_policy("logged", CATALOGUE, logs=logs([0.3], ["a"], rounds=[1]))


@pytest.mark.parametrize("total", [0.9991, 1.0009])
def test_logged_is_renormalised_within_what_certificates_allow(total: float) -> None:
    rows = logs(np.array([0.7, 0.2, 0.1]) * total, ["a", "b", "c"])
    policy = named_policy("logged", CATALOGUE, logs=rows).policy
    np.testing.assert_allclose(policy.probabilities(CONTEXTS)[0], TABLE)
    require_drawn_by(policy, rows)


def test_items_never_logged_get_nothing_and_a_note() -> None:
    named = named_policy("logged", CATALOGUE, logs=logs([0.7, 0.3], ["a", "b"]))
    np.testing.assert_allclose(named.policy.probabilities(CONTEXTS)[0], [0.7, 0.3, 0, 0])
    assert named.notes[1].endswith("never logged get probability 0: 'c'")


def test_logged_refuses_what_is_no_table() -> None:
    rows = logs([0.7, 0.2, 0.1, 0.200001], ["a", "b", "c", "b"])
    words = r"one propensity per item.*row 3: \"item 'b': 0.200001, but 0.2 in row 1.*a table by"
    with pytest.raises(DataError, match=words):
        named_policy("logged", CATALOGUE, logs=rows)
    for p, words in (
        ([0.7, 0.2, 0.0985], "sum 0.9985 over the 3 items logged, of 3 supported"),
        ([0.7, 0.2, 0.1015], r"sum 1.0015 over the 3 items"),
    ):
        with pytest.raises(DataError, match=words):
            named_policy("logged", CATALOGUE, logs=logs(p, ["a", "b", "c"]))
    with pytest.raises(ConfigError, match="logged needs the logs"):
        named_policy("logged", CATALOGUE)


def test_a_model_of_probabilities(tmp_path: Path) -> None:
    weights = onnx_file(tmp_path / "model.onnx")
    named = named_policy(tmp_path / "model.onnx", CATALOGUE, logs=by_context())
    expected = np.zeros((3, 4))
    expected[:, ~NOVEL] = softmax(CONTEXTS @ weights)
    same_after_saving(named, expected, tmp_path)
    assert "in the order of the catalogue" in named.notes[1]


def test_a_model_of_scores(tmp_path: Path) -> None:
    weights = onnx_file(tmp_path / "model.onnx", columns=4, softmax=False)
    named = named_policy(f"scores:{tmp_path}/model.onnx", CATALOGUE, logs=by_context())
    expected = np.zeros((3, 4))
    expected[:, ~NOVEL] = softmax((CONTEXTS @ weights)[:, ~NOVEL])
    same_after_saving(named, expected, tmp_path)
    assert "the softmax of model.onnx" in named.notes[0]


@pytest.mark.parametrize("with_logs", [True, False])
def test_scores_are_not_taken_for_probabilities(tmp_path: Path, with_logs: bool) -> None:
    onnx_file(tmp_path / "model.onnx", softmax=False)
    with pytest.raises(PolicyError, match=r"must be probabilities.*scores:model\.onnx"):
        named_policy(tmp_path / "model.onnx", CATALOGUE, logs=by_context() if with_logs else None)


def test_a_model_that_shows_novel_items_is_refused(tmp_path: Path) -> None:
    onnx_file(tmp_path / "model.onnx", columns=4)
    with pytest.raises(PolicyError, match="not show a novel item. Found: item 'new' with prob"):
        named_policy(tmp_path / "model.onnx", CATALOGUE, logs=by_context())


def test_a_model_of_other_items_or_features_is_refused(tmp_path: Path) -> None:
    onnx_file(tmp_path / "model.onnx", columns=5)
    with pytest.raises(PolicyError, match="5 columns in model.onnx, 4 items, 3 supported"):
        named_policy(tmp_path / "model.onnx", CATALOGUE)
    onnx_file(tmp_path / "model.onnx")
    other = LoggedData.from_arrays(
        contexts=[[1.0]],
        actions=["a"],
        rewards=[0],
        propensities=[1.0],
        catalogue=CATALOGUE,
        r_max=1.0,
    )
    with pytest.raises(PolicyError, match="must have the 2 features"):
        named_policy(tmp_path / "model.onnx", CATALOGUE, logs=other)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_table_of_probabilities(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"pi0.{kind}"
    table = wide().drop("new")
    table.write_parquet(path) if kind == "parquet" else table.write_csv(path)
    named = named_policy(path, CATALOGUE, logs=by_context())
    same_after_saving(named, PI, tmp_path)
    require_drawn_by(named.policy, by_context())
    assert named.notes[1] == "contexts of the table: 'x', 'y'"


def test_a_table_with_named_contexts_in_another_order(tmp_path: Path) -> None:
    table = wide(segment=["u", "v", "w"]).select("segment", "y", "c", "x", "a", "new", "b")
    table.write_parquet(tmp_path / "pi0.parquet")
    named = named_policy(tmp_path / "pi0.parquet", CATALOGUE, contexts=["x", "y"])
    same_after_saving(named, PI, tmp_path)
    assert named.notes[1] == "columns of the table that are not read: 'segment'"
    with pytest.raises(DataError, match="unless a mapping says how to read text"):
        named_policy(tmp_path / "pi0.parquet", CATALOGUE)
    with pytest.raises(ConfigError, match=r"contexts=\['x'\]"):
        named_policy(tmp_path / "pi0.parquet", CATALOGUE, contexts="x")


def test_a_table_read_as_the_mapping_reads_the_logs(tmp_path: Path) -> None:
    values = ("NO", "SE")
    mapping = LogMapping(
        action="item", reward="click", propensity="p", numeric=("x",), categorical={"land": values}
    )
    lands = ["SE", "NO", "DK"]
    table = wide().drop("y").with_columns(land=pl.Series(lands).cast(pl.Categorical))
    table.write_parquet(tmp_path / "pi0.parquet")
    rows = pl.DataFrame({"item": ["a", "b", "c"], "click": [0, 1, 0], "p": [0.5, 0.6, 0.5]})
    rows = rows.with_columns(x=pl.Series(CONTEXTS[:, 0]), land=pl.Series(lands))
    rows.write_parquet(tmp_path / "logs.parquet")
    own = read_from(tmp_path / "logs.parquet", mapping, CATALOGUE)
    named = named_policy(tmp_path / "pi0.parquet", CATALOGUE, logs=own, contexts=mapping)
    np.testing.assert_allclose(named.policy.probabilities(own.contexts), PI, rtol=1e-9)
    require_drawn_by(named.policy, own)


def test_a_table_without_contexts_is_one_row(tmp_path: Path) -> None:
    pl.DataFrame({"a": [0.7], "b": [0.2], "c": [0.1]}).write_csv(tmp_path / "pi0.csv")
    mapping = LogMapping(action="item", reward="click", propensity="p")
    for contexts in ((), mapping):
        named = named_policy(tmp_path / "pi0.csv", CATALOGUE, contexts=contexts)
        np.testing.assert_allclose(named.policy.probabilities(np.zeros((1, 1)))[0], TABLE)


@pytest.mark.parametrize("width", [3, 4])
def test_a_table_with_a_column_of_lists(tmp_path: Path, width: int) -> None:
    lists = (PI if width == 4 else PI[:, ~NOVEL]).tolist()
    table = wide().select("x", "y").with_columns(probabilities=pl.Series(lists))
    table.write_parquet(tmp_path / "pi0.parquet")
    named = named_policy(tmp_path / "pi0.parquet", CATALOGUE, logs=by_context())
    same_after_saving(named, PI, tmp_path)
    short = table.with_columns(probabilities=pl.Series([[0.5, 0.5]] * 3))
    short.write_parquet(tmp_path / "pi0.parquet")
    with pytest.raises(DataError, match="shape .3, 2.*lists of 3 or 4, in the order"):
        named_policy(tmp_path / "pi0.parquet", CATALOGUE)


def test_a_table_of_scores(tmp_path: Path) -> None:
    scores = np.random.default_rng(1).normal(size=(3, 4))
    wide(scores).write_parquet(tmp_path / "s.parquet")
    named = named_policy(f"scores:{tmp_path}/s.parquet", CATALOGUE, logs=by_context())
    expected = np.zeros((3, 4))
    expected[:, ~NOVEL] = softmax(scores[:, ~NOVEL])
    same_after_saving(named, expected, tmp_path)


def test_rows_rounded_in_a_csv_are_renormalised(tmp_path: Path) -> None:
    wide(PI * 1.0004).write_csv(tmp_path / "pi0.csv")
    named = named_policy(tmp_path / "pi0.csv", CATALOGUE, logs=by_context())
    same_after_saving(named, PI, tmp_path)


def test_a_repeated_context_must_have_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "pi0.parquet"
    pl.concat([wide(), wide()]).write_parquet(path)
    same_after_saving(named_policy(path, CATALOGUE), PI, tmp_path)
    pl.concat([wide(), wide(PI[[0, 2, 1]])]).write_parquet(path)
    with pytest.raises(DataError, match="row 4: .*row 1 has the same context and other numbers"):
        named_policy(path, CATALOGUE)


def changed(row: int, place: int, value: float) -> Any:
    out = PI.copy()
    out[row, place] = value
    return out


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (wide(changed(1, 0, -0.1)), r"must be >= 0.*'a', row 1: -0\.1"),
        (wide(changed(1, 0, float("nan"))), r"must be >= 0.*'a', row 1: nan"),
        (wide(changed(2, 2, 0.01)), r"novel item.*'new', row 2: 0\.01"),
        (wide(changed(2, 3, 0.6)), r"must sum to 1.*row 2: 'sum 1\.1'"),
        (wide(0 * PI), r"must sum to 1.*row 0: 'sum 0' \(3 such rows\)"),
        (wide().drop("b"), "column for every supported item.*'b': 1 of them are not in pi0"),
        (wide(b=["0.3", "much", "0.2"]), "column 'b'.*must hold numbers|must hold numbers.*'b'"),
        (wide(x=[0.1, None, 0.3]), "'x', row 1"),
    ],
)
def test_a_table_that_is_no_policy_is_refused(
    tmp_path: Path, table: pl.DataFrame, words: str
) -> None:
    table.write_parquet(tmp_path / "pi0.parquet")
    with pytest.raises(DataError, match=words):
        named_policy(tmp_path / "pi0.parquet", CATALOGUE)


def test_a_table_must_cover_the_logs(tmp_path: Path) -> None:
    wide()[:2].write_parquet(tmp_path / "pi0.parquet")
    with pytest.raises(PolicyError, match="1 of 3 contexts are not in it"):
        named_policy(tmp_path / "pi0.parquet", CATALOGUE, logs=by_context())
    with pytest.raises(DataError, match="column must be in the file.*'z'"):
        named_policy(tmp_path / "pi0.parquet", CATALOGUE, contexts=["z"])


def test_a_saved_policy_must_be_of_this_catalogue_and_show_nothing_new(tmp_path: Path) -> None:
    save(Uniform(~NOVEL), tmp_path / "plain")
    with pytest.raises(FileError, match="saved for this catalogue"):
        named_policy(tmp_path / "plain", CATALOGUE)
    exploring = Mixture([Uniform(~NOVEL), Uniform(NOVEL)], [0.9, 0.1])
    save(exploring, tmp_path / "new", catalogue=CATALOGUE)
    with pytest.raises(PolicyError, match="'new' with probability up to 0.1"):
        named_policy(tmp_path / "new", CATALOGUE, logs=by_context())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unifrom", "named in a known way. Found: 'unifrom', no such file. Cure: uniform; logged"),
        ("missing.onnx", "No such file"),
        ("missing.parquet", "'missing.parquet', no such file"),
        ("model.pkl", "model.pkl, a file of another kind"),
        ("scores:folder", "'scores:folder', a folder"),
        ("folder", "with its manifest"),
        ("", "with its manifest|no such file"),
        ("empty.csv", "must not be empty"),
        ("broken.onnx", "must be an ONNX model"),
        ("broken.parquet", "must be readable as what its name says"),
    ],
)
def test_other_words_are_refused(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name in ("model.pkl", "broken.onnx", "broken.parquet"):
        Path(name).write_text("nothing of the kind")
    Path("empty.csv").write_text("")
    with pytest.raises(FileError, match=words):
        named_policy(text, CATALOGUE)


@pytest.mark.parametrize("shares", [[0.5, 0.4], [1.5, -0.5], [[1.0]], [float("nan"), 1.0]])
def test_shares_must_be_a_distribution(shares: Any) -> None:
    with pytest.raises(DepsueError, match="must sum to 1"):
        ByItem(shares)


def test_a_pi0_that_shows_new_items_is_refused_as_logged() -> None:
    catalogue = Catalogue(np.arange(3), np.array([False, False, True]), np.eye(3))
    rows = LoggedData.from_arrays(
        contexts=np.zeros((2, 1)),
        actions=np.array([0, 1]),
        rewards=np.zeros(2),
        propensities=np.array([0.75, 0.5]),
        catalogue=catalogue,
        r_max=1.0,
        candidates=Candidates.of_lists([[0, 2], [1, 0]], [[0.75, 0.25], [0.5, 0.5]]),
    )
    with pytest.raises(PolicyError, match="must not show a novel item.*item 2 with.*0.25"):
        named_policy("logged", catalogue, logs=rows)
    with pytest.raises(PolicyError, match="must not show a novel item"):
        known_by(rows)


def test_rows_of_another_version_of_pi0_are_named() -> None:
    catalogue = Catalogue(np.arange(2), np.array([False, False]), np.eye(2))
    rows = LoggedData.from_arrays(
        contexts=np.zeros((4, 1)),
        actions=np.array([0, 1, 0, 1]),
        rewards=np.zeros(4),
        propensities=np.array([0.5, 0.5, 0.7, 0.3]),
        catalogue=catalogue,
        r_max=1.0,
        versions=["v2", "v2", "v1", "v1"],
    )
    with pytest.raises(DataError, match="pi0 changed.*2 of 'v1'; those of 'v2' are"):
        require_drawn_by(Uniform(np.ones(2, dtype=bool)), rows)
