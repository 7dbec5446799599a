"""A team's own model as an ONNX file: as scores, as probabilities, as rewards; saved whole."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from depsue import onnx as onnx_module
from depsue.artifacts import read
from depsue.errors import ConfigError, DepsueError, FileError, PolicyError
from depsue.policies import (
    EpsilonGreedy,
    Mixture,
    OnnxScores,
    OwnPolicy,
    ScoreTable,
    SoftmaxOfScores,
    Uniform,
    load,
    save,
)
from depsue.policies.cached import CachedRewardModel
from depsue.policies.tilted import ModelSoftmax, Tilted
from depsue.rewards import Blend, LinearRewardModel, OwnRewardModel
from depsue.savable import POLICY, REWARD_MODEL, described, hash_of, rebuilt
from depsue.testing.policies import PolicyConformance

DRAW = np.random.default_rng(5)
CONTEXTS = DRAW.normal(size=(5, 3)).astype(np.float32)
WEIGHTS = DRAW.normal(size=(3, 6)).astype(np.float32)
SUPPORT = np.array([True, True, False, True, True, False])
LINEAR = "y = MatMul(x, w)"
SOFTMAX = "s = MatMul(x, w) y = Softmax<axis = 1>(s)"
SIGMOID = "s = MatMul(x, w) y = Sigmoid(s)"


def model(
    body: str, ends: str = "(float[N, 3] x) => (float[N, 6] y)", weights: Any = WEIGHTS
) -> onnx.ModelProto:
    """A model with weights w."""
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    proto = parser.parse_model(f"{head} ours {ends} {{ {body} }}")
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return proto


def content(body: str, *args: Any) -> bytes:
    return bytes(model(body, *args).SerializeToString())


SCORES, CHANCES = OnnxScores(content(LINEAR)), OnnxScores(content(SOFTMAX))
REWARDS = OwnRewardModel(OnnxScores(content(SIGMOID)), 6)


class TestSoftmaxOfOnnx(PolicyConformance):
    policy, contexts = SoftmaxOfScores(SCORES, 2.0, SUPPORT), CONTEXTS


class TestGreedyOnnx(PolicyConformance):
    policy, contexts = EpsilonGreedy(SCORES, 0.3, SUPPORT), CONTEXTS


class TestOnnxOfSomeActions(PolicyConformance):
    policy = OwnPolicy(OnnxScores(CHANCES.content, places=[0, 7, 2, 3, 4, 5], n_actions=8), 8)
    contexts = CONTEXTS


class TestMixtureWithOnnx(PolicyConformance):
    policy = Mixture([OwnPolicy(CHANCES, 6), Uniform(~SUPPORT)], [0.9, 0.1])
    contexts = CONTEXTS


class TestTiltByOnnx(PolicyConformance):
    policy = Tilted(
        OwnPolicy(CHANCES, 6), CachedRewardModel(REWARDS), strength=2.0, cap=4.0, scale=0.1
    )
    contexts = CONTEXTS


class TestChoiceByABlendWithOnnx(PolicyConformance):
    linear = LinearRewardModel(0.5, DRAW.normal(size=3) / 20, DRAW.normal(size=6) / 8, 1.0)
    policy = ModelSoftmax(
        CachedRewardModel(Blend([linear, REWARDS])), ~SUPPORT, strength=3.0, scale=0.1
    )
    contexts = CONTEXTS


def test_the_numbers_are_the_models() -> None:
    np.testing.assert_allclose(SCORES(CONTEXTS), CONTEXTS @ WEIGHTS, rtol=1e-5)
    assert (SCORES.d, SCORES.n_actions) == (3, 6)
    odds = np.exp(CONTEXTS @ WEIGHTS)
    expected = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(OwnPolicy(CHANCES, 6).probabilities(CONTEXTS), expected, rtol=1e-5)
    np.testing.assert_allclose(
        REWARDS.predict_pairs(CONTEXTS, np.array([2, 0]), np.array([4, 1])),
        (odds / (1 + odds))[[4, 1], [2, 0]],
        rtol=1e-5,
    )
    assert SCORES(CONTEXTS[:0]).shape == (0, 6)
    wide = content(LINEAR, "(double[N, 3] x) => (double[N, 6] y)", WEIGHTS.astype(np.float64))
    np.testing.assert_allclose(OnnxScores(wide)(CONTEXTS), CONTEXTS @ WEIGHTS, rtol=1e-5)


def test_runs_are_cut_and_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SCORES(CONTEXTS)
    monkeypatch.setattr(onnx_module, "AT_ONCE", 2)
    np.testing.assert_allclose(SCORES(CONTEXTS), whole, rtol=1e-6)


def test_columns_go_where_they_are_told() -> None:
    placed = OnnxScores(SCORES.content, places=[7, 0, 2, 3, 4, 5], n_actions=8)
    scores = placed(CONTEXTS)
    np.testing.assert_array_equal(scores[:, [7, 0, 2, 3, 4, 5]], SCORES(CONTEXTS))
    assert (scores[:, [1, 6]] == 0).all() and placed.n_actions == 8


def test_one_of_several_outputs_is_named() -> None:
    ends = "(float[N, 3] x) => (float[N, 6] y, float[N, 6] s, int64[N] best)"
    both = content(f"{SOFTMAX} best = ArgMax<axis = 1, keepdims = 0>(s)", ends)
    np.testing.assert_array_equal(OnnxScores(both, output="s")(CONTEXTS), SCORES(CONTEXTS))
    with pytest.raises(FileError, match=r"one output of floats\. Found: 'y' .*'s' .*output="):
        OnnxScores(both)
    with pytest.raises(FileError, match="one output of floats named 'best'"):
        OnnxScores(both, output="best")


def test_the_bytes_are_saved_inside_the_policy(tmp_path: Path) -> None:
    save(OwnPolicy(CHANCES, 6), tmp_path / "p")
    _, settings, arrays = read(tmp_path / "p", family="policy")
    assert arrays["onnx"].tobytes() == CHANCES.content
    assert settings["policy"]["onnx"]["sha256"] == CHANCES.sha256


def test_bytes_that_do_not_match_their_hash_are_refused() -> None:
    kind, settings, arrays = described(OwnPolicy(CHANCES, 6), POLICY)
    flipped = arrays["onnx"].copy()
    flipped[CHANCES.content.index(WEIGHTS.tobytes()) + 2] ^= 1
    OnnxScores(flipped.tobytes())  # loads without a word
    with pytest.raises(FileError, match="must match its SHA-256"):
        rebuilt(POLICY, kind, settings, {"onnx": flipped})


def test_every_model_has_a_hash_of_its_own() -> None:
    hashes = {hash_of(OwnPolicy(one, 6)) for one in (SCORES, CHANCES)}
    hashes |= {hash_of(REWARDS), hash_of(OwnRewardModel(SCORES, 6))}
    assert len(hashes) == 4 and None not in hashes


def test_a_reward_model_over_a_table_is_saved_too(tmp_path: Path) -> None:
    own = OwnRewardModel(ScoreTable(CONTEXTS, np.abs(DRAW.normal(size=(5, 6)))), 6)
    policy = ModelSoftmax(own, SUPPORT, strength=1.0, scale=0.5)
    save(policy, tmp_path / "p")
    again = load(tmp_path / "p").probabilities(CONTEXTS)
    np.testing.assert_allclose(again, policy.probabilities(CONTEXTS), rtol=1e-6)


def test_an_own_reward_model_comes_back_from_its_state() -> None:
    again = rebuilt(REWARD_MODEL, *described(REWARDS, REWARD_MODEL))
    np.testing.assert_array_equal(again.predict(CONTEXTS), REWARDS.predict(CONTEXTS))


def test_it_crosses_process_borders() -> None:
    for again in (pickle.loads(pickle.dumps(SCORES)), copy.deepcopy(SCORES)):
        np.testing.assert_array_equal(again(CONTEXTS), SCORES(CONTEXTS))


def test_it_runs_on_one_thread_of_the_cpu() -> None:
    options = SCORES.session.get_session_options()
    assert options.intra_op_num_threads == options.inter_op_num_threads == 1
    assert SCORES.session.get_providers() == ["CPUExecutionProvider"]


def outside(proto: onnx.ModelProto, tensor: onnx.TensorProto) -> bytes:
    """The model with a tensor in another file, which is there."""
    Path("w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    return bytes(proto.SerializeToString())


def in_a_constant(proto: onnx.ModelProto) -> Any:
    tensor = numpy_helper.from_array(WEIGHTS, "v")
    proto.graph.node.append(helper.make_node("Constant", [], ["v"], value=tensor))
    return proto.graph.node[1].attribute[0].t


def in_a_branch(proto: onnx.ModelProto) -> Any:
    tensor = numpy_helper.from_array(WEIGHTS, "v")
    graph = helper.make_graph([helper.make_node("Constant", [], ["v"], value=tensor)], "g", [], [])
    proto.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=graph))
    return proto.graph.node[1].attribute[0].g.node[0].attribute[0].t


def in_a_function(proto: onnx.ModelProto) -> Any:
    tensor = numpy_helper.from_array(WEIGHTS, "v")
    node = helper.make_node("Constant", [], ["v"], value=tensor)
    proto.functions.append(helper.make_function("ours", "f", [], ["v"], [node], []))
    return proto.functions[0].node[0].attribute[0].t


def among_sparse_ones(proto: onnx.ModelProto) -> Any:
    values = numpy_helper.from_array(WEIGHTS.ravel(), "v")
    places = numpy_helper.from_array(np.arange(WEIGHTS.size), "places")
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, places, list(WEIGHTS.shape))
    )
    return proto.graph.sparse_initializer[0].values


def in_training(proto: onnx.ModelProto) -> Any:
    info = proto.training_info.add()
    info.initialization.initializer.append(numpy_helper.from_array(WEIGHTS, "v"))
    return info.initialization.initializer[0]


@pytest.mark.parametrize(
    "place",
    [
        lambda proto: proto.graph.initializer[0],
        in_a_constant,
        in_a_branch,
        in_a_function,
        among_sparse_ones,
        in_training,
    ],
)
def test_a_model_with_files_beside_it_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[onnx.ModelProto], onnx.TensorProto],
) -> None:
    monkeypatch.chdir(tmp_path)
    plain = model(LINEAR)
    with pytest.raises(FileError, match=r"must be one file\. Found: tensor '[vw]'"):
        OnnxScores(outside(plain, place(plain)))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package} is not installed.*depsue\[onnx\]"):
        OnnxScores(SCORES.content)


def test_damaged_bytes_are_an_error_or_another_model_never_a_traceback() -> None:
    draw, whole = np.random.default_rng(2), CHANCES.content
    for place in draw.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draw.integers(0, 8))
        try:
            OnnxScores(bytes(damaged))
        except DepsueError:
            pass


ROWS = "(float[N, 3] x) => (float[N, 6] y)"
REFUSED: list[tuple[Callable[[], object], type[DepsueError], str]] = [
    (lambda: OnnxScores(b""), FileError, "must be an ONNX model.*ir_version"),
    (lambda: OnnxScores(b"no model at all"), FileError, "must be an ONNX model.*15 bytes"),
    (lambda: OnnxScores(SCORES.content[:-30]), FileError, "must be an ONNX model"),
    (
        lambda: OnnxScores(content("y = ours.magic(x)")),
        FileError,
        r"must be an ONNX model.*magic",
    ),
    (
        lambda: OnnxScores(content("y = MatMul(x, w)", "(float[1, 3] x) => (float[1, 6] y)")),
        FileError,
        r"one input of floats.*'x' tensor\(float\) \[1, 3\].*the batch left open",
    ),
    (
        lambda: OnnxScores(content("y = Add(x, z)", "(float[N, 6] x, float[N, 6] z) => (float y)")),
        FileError,
        "one input of floats.*'x' .*'z'",
    ),
    (
        lambda: OnnxScores(content("y = MatMul(x, w)", "(float[N, M] x) => (float[N, 6] y)")),
        FileError,
        r"one input of floats.*\['N', 'M'\]",
    ),
    (
        lambda: OnnxScores(
            content("y = ArgMax<axis = 1>(x)", "(float[N, 3] x) => (int64[N, 1] y)")
        ),
        FileError,
        r"one output of floats.*int64",
    ),
    (
        lambda: OnnxScores(
            content("y = ReduceSum<keepdims = 0>(x)", "(float[N, 3] x) => (float y)")
        ),
        FileError,
        r"one row per context.*shape \(\)",
    ),
    (
        lambda: OnnxScores(content("s = MatMul(x, w) y = Softmax<axis = 0>(s)")),
        FileError,
        "for each context alone.*axis 1",
    ),
    (
        lambda: OnnxScores(content("s = MatMul(x, w) r = RandomNormalLike(s) y = Add(s, r)")),
        FileError,
        "always the same",
    ),
    (lambda: SCORES(CONTEXTS[:, :2]), PolicyError, r"the 3 features of the ONNX.*\(5, 2\)"),
    (
        lambda: OnnxScores(SCORES.content, places=[0, 1], n_actions=8),
        PolicyError,
        r"6 different actions.*\[0, 1\]",
    ),
    (
        lambda: OnnxScores(SCORES.content, places=[0, 1, 2, 3, 4, 8], n_actions=8),
        PolicyError,
        "of 8 actions.*supported_actions",
    ),
    (lambda: OwnPolicy(SCORES, 6).probabilities(CONTEXTS), PolicyError, ">= 0 and sum to 1"),
    (lambda: OwnPolicy(CHANCES, 5).probabilities(CONTEXTS), PolicyError, r"shape \(5, 5\)"),
    (
        lambda: SoftmaxOfScores(
            OnnxScores(content("s = MatMul(x, w) y = Log(s)")), 1.0, SUPPORT
        ).probabilities(CONTEXTS),
        PolicyError,
        "NaN or infinite",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_what_breaks_a_rule_is_refused(
    call: Callable[[], object], kind: type[DepsueError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_files_are_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(SCORES.content)
    np.testing.assert_array_equal(OnnxScores.read(path)(CONTEXTS), SCORES(CONTEXTS))
    monkeypatch.setattr(onnx_module, "MOST_BYTES", 100)
    with pytest.raises(FileError, match="100 bytes at most"):
        OnnxScores.read(path)
    with pytest.raises(FileError, match="must be readable.*No such file"):
        OnnxScores.read(tmp_path / "other.onnx")


def test_a_missing_runtime_is_said_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Mixture([OwnPolicy(CHANCES, 6)], [1.0]), tmp_path / "p")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for call in (lambda: OnnxScores(SCORES.content), lambda: load(tmp_path / "p")):
        with pytest.raises(ConfigError, match=r"onnxruntime is not installed.*depsue\[onnx\]"):
            call()
