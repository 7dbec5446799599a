"""A team's own model as an ONNX file: scores, probabilities or predicted rewards.

The bytes of the model are saved inside the policy that uses it, with their SHA-256: onnxruntime
loads most files with a flipped bit without a word.

A model must be one file. onnxruntime would look for further weights in the working directory, also
where the model is given as bytes: the same bytes would be another model elsewhere, and no hash of
them would tell. So the model is read and checked by `onnx`, and refused if a tensor is elsewhere.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.errors import ConfigError, FileError, PolicyError, require, short
from depsue.savable import State

if TYPE_CHECKING:
    from google.protobuf.message import Message

MOST_BYTES = 512 << 20
"""The largest model that is read."""
AT_ONCE = 4096
"""Contexts in one run, so that wide hidden layers need little memory."""
NUMBERS = {"tensor(float)": np.float32, "tensor(double)": np.float64}
EXPORT = "export it with one input of floats, (batch, features), the batch left open"


class OnnxScores:
    """A callable (m, d) contexts -> (m, A) numbers, by an ONNX model.

    It serves wherever a callable does: as the scores of `SoftmaxOfScores`, as the probabilities of
    `OwnPolicy`, as the predictions of `OwnRewardModel`. It runs on one thread of the CPU, without
    custom operators and without files beside the model's own.

    Args:
        content: the bytes of the model.
        output: the output to take; None where only one holds floats.
        places: (k,) the action that each of the model's k columns is about; None: all A, in order.
        n_actions: A, where `places` are given; actions without a column get 0.
    """

    def __init__(
        self,
        content: bytes,
        *,
        output: str | None = None,
        places: Any = None,
        n_actions: int | None = None,
    ) -> None:
        self.content, self.sha256 = bytes(content), hashlib.sha256(content).hexdigest()
        self.session = _session(self.content)
        self._input, self.d, self._dtype = _input(self.session)
        self.output = _output(self.session, output)
        columns = self._tried()
        self._places = None if places is None else _checked(places, columns, n_actions)
        self._n_actions = columns if places is None or n_actions is None else int(n_actions)

    @classmethod
    def read(cls, path: str | Path, **how: Any) -> OnnxScores:
        """The model in a file; `how` as above."""
        file = Path(path)
        try:
            size = file.stat().st_size
            require(
                size <= MOST_BYTES,
                f"an ONNX file may have {MOST_BYTES:,} bytes at most",
                found=f"{size:,} in {file}",
                cure="export a smaller model, or give its scores as a ScoreTable",
                error=FileError,
            )
            content = file.read_bytes()
        except OSError as problem:
            raise FileError(
                "the model must be readable",
                found=f"{file}: {problem.strerror}",
                cure="give the path of an .onnx file",
            ) from problem
        return cls(content, **how)

    @property
    def n_actions(self) -> int:
        """A."""
        return self._n_actions

    def __repr__(self) -> str:
        return f"OnnxScores({self.d} features, {self.n_actions:,} actions, {self.sha256[:12]})"

    def __call__(self, contexts: FloatArray) -> FloatArray:
        """(m, A) the numbers of every action."""
        x = np.ascontiguousarray(contexts, dtype=self._dtype)
        require(
            x.ndim == 2 and x.shape[1] == self.d,
            f"contexts must have the {self.d} features of the ONNX model",
            found=f"shape {x.shape}",
            cure="give the features that the model was trained on, in their order",
            error=PolicyError,
        )
        pieces = [self._run(x[start : start + AT_ONCE]) for start in range(0, len(x), AT_ONCE)]
        values = np.concatenate(pieces) if pieces else self._run(x)
        if self._places is None:
            return values
        out = np.zeros((len(x), self.n_actions), dtype=values.dtype)
        out[:, self._places] = values
        return out

    def state(self) -> State:
        """What `from_state` rebuilds it from: the bytes themselves."""
        facts = {"sha256": self.sha256, "output": self.output, "n_actions": self.n_actions}
        arrays: dict[str, Any] = {"onnx": np.frombuffer(self.content, dtype=np.uint8)}
        if self._places is not None:
            arrays["places"] = np.asarray(self._places, dtype=np.int64)
        return State({"onnx": facts}, arrays)

    @classmethod
    def from_state(cls, state: State) -> OnnxScores:
        """What `state` described; bytes that do not match their SHA-256 are refused."""
        facts, content = state.settings["onnx"], state.arrays["onnx"].tobytes()
        sha256 = hashlib.sha256(content).hexdigest()
        require(
            sha256 == facts["sha256"],
            "a saved ONNX model must match its SHA-256",
            found=f"{sha256[:12]}, {str(facts['sha256'])[:12]} expected",
            cure="restore it from a copy, or save it again",
            error=FileError,
        )
        places, n_actions = state.arrays.get("places"), facts["n_actions"]
        return cls(content, output=facts["output"], places=places, n_actions=n_actions)

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes the bytes travel, not the session."""
        return OnnxScores.from_state, (self.state(),)

    def _run(self, x: FloatArray) -> FloatArray:
        try:
            return np.asarray(self.session.run([self.output], {self._input: x})[0])
        except Exception as problem:  # onnxruntime's errors share no other base
            raise PolicyError(
                f"the ONNX model must answer for {len(x)} contexts of {self.d} features",
                found=_words(problem),
                cure=f"try it in onnxruntime; {EXPORT}",
            ) from problem

    def _tried(self) -> int:
        """The model's columns; what looks at the other rows of the batch is refused."""
        x = np.stack([np.zeros(self.d), np.ones(self.d)]).astype(self._dtype)
        both, alone = self._run(x), self._run(x[1:])
        require(
            both.ndim == 2 and both.shape == (2, alone.shape[-1]) and alone.shape[0] == 1,
            "the output of an ONNX model must have one row per context, one column per action",
            found=f"'{self.output}' of shape {both.shape} for 2 contexts, {alone.shape} for 1",
            cure=EXPORT,
            error=FileError,
        )
        size = 1e-4 * (1 + np.abs(np.nan_to_num(alone)).max(initial=0))
        require(
            bool(np.allclose(both[1], alone[0], rtol=1e-4, atol=size, equal_nan=True)),
            "an ONNX model must answer for each context alone, and always the same",
            found="another answer for the same context in a batch of 2 and in a batch of 1",
            cure="export it in evaluation mode; a softmax goes over axis 1",
            error=FileError,
        )
        return int(both.shape[1])


def _session(content: bytes) -> Any:
    try:
        import onnx
        import onnxruntime
        from google.protobuf.message import DecodeError
    except ImportError as problem:
        raise ConfigError(
            "an ONNX model needs the packages onnx and onnxruntime",
            found=f"{problem.name} is not installed",
            cure="pip install 'depsue[onnx]'",
        ) from problem
    rule, cure = "the file must be an ONNX model", "check it with onnx.checker, or export it again"
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as problem:
        raise FileError(
            rule, found=f"{len(content):,} bytes of something else", cure=cure
        ) from problem
    outside = _external_tensor(model)
    require(
        outside is None,
        "an ONNX model must be one file",
        found=f"tensor {short(outside)} is kept in another file",
        cure="onnx.save_model(onnx.load(path), path, save_as_external_data=False)",
        error=FileError,
    )
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as problem:  # ValueError: text that is none
        raise FileError(rule, found=_words(problem), cure=cure) from problem
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as problem:  # onnxruntime's errors share no other base
        raise FileError(rule, found=_words(problem), cure=cure) from problem


def _input(session: Any) -> tuple[str, int, Any]:
    """The name of the one input, its features, and its type."""
    inputs = session.get_inputs()
    ok = len(inputs) == 1 and inputs[0].type in NUMBERS and len(inputs[0].shape) == 2
    ok = ok and not isinstance(inputs[0].shape[0], int) and isinstance(inputs[0].shape[1], int)
    rule = "an ONNX model must have one input of floats, (any number of rows, d)"
    require(ok, rule, found=_listed(inputs), cure=EXPORT, error=FileError)
    return inputs[0].name, inputs[0].shape[1], NUMBERS[inputs[0].type]


def _output(session: Any, wanted: str | None) -> str:
    outputs = session.get_outputs()
    names = [end.name for end in outputs if end.type in NUMBERS and wanted in (None, end.name)]
    rule = "an ONNX model must have one output of floats" + f" named {wanted!r}" * (
        wanted is not None
    )
    cure = "name it: OnnxScores(..., output=...); of scikit-learn's, export with zipmap=False"
    require(len(names) == 1, rule, found=_listed(outputs), cure=cure, error=FileError)
    return str(names[0])


def _checked(places: Any, columns: int, n_actions: int | None) -> IntArray:
    array, size = np.asarray(places), n_actions or 0
    ok = array.dtype.kind in "iu" and array.shape == (columns,) and len(np.unique(array)) == columns
    require(
        ok and 0 <= array.min() and array.max() < size,
        f"places must be {columns} different actions, one for each column of the model",
        found=f"{short(array.tolist())} of {size} actions",
        cure="catalogue.supported_actions, with n_actions=len(catalogue)",
        error=PolicyError,
    )
    return array


def _listed(ends: Any) -> str:
    return ", ".join(f"'{end.name}' {end.type} {end.shape}" for end in ends) or "none"


def _words(problem: Exception) -> str:
    return short(" ".join(str(problem).split()), 200)


def _external_tensor(message: Message) -> str | None:
    """The name of a tensor in a message, or below it, that is kept in another file; None if none.

    Every field is looked at, whatever its name: weights hide in initialisers, attributes,
    functions, subgraphs and training information.
    """
    from google.protobuf.message import Message

    if message.DESCRIPTOR.name == "TensorProto":
        tensor: Any = message
        outside = len(tensor.external_data) > 0 or tensor.data_location != 0
        return str(tensor.name) if outside else None
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in [value] if isinstance(value, Message) else value:
            name = _external_tensor(part)
            if name is not None:
                return name
    return None
