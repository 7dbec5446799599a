"""What a command line's `--pi0` means: a word, a folder, a model or a table becomes a policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from depsue.data.catalogue import ActionCatalogue
from depsue.data.logs import LoggedData
from depsue.data.tables import KINDS, listed_names
from depsue.errors import ConfigError, DataError, FileError, PolicyError, require, short
from depsue.policies.base import BasePolicy
from depsue.policies.files import load
from depsue.policies.given_table import SHARE, Contexts, read_shares, read_table
from depsue.policies.onnx import OnnxScores
from depsue.policies.scores import OwnPolicy
from depsue.policies.simple import ByItem, SoftmaxOfScores, Uniform

SAME = 1e-6
"""Logged propensities of an item are the same if they differ by less, relatively."""
MOST_TRIED = 100_000
"""Contexts of the logs at which a policy is tried, at most."""
AS_SCORES = "scores:"
CURE = (
    "uniform; logged; a folder of a saved policy; a model.onnx or a table of probabilities; "
    "scores:model.onnx or scores:table.parquet for scores"
)


@dataclass(frozen=True, eq=False)
class Given:
    """A policy that was named in words.

    Args:
        policy: the policy; it can be saved.
        notes: what it rests on, a sentence each.
    """

    policy: BasePolicy
    notes: tuple[str, ...] = ()


def given_policy(
    text: str | Path,
    catalogue: ActionCatalogue,
    *,
    logs: LoggedData | None = None,
    contexts: Contexts = (),
) -> Given:
    """pi0 as a command line names it.

    Args:
        text: `uniform`, the same probability for every supported item; `logged`, the logged
            propensities as a fixed table by item; the folder of a saved policy; an ONNX file or a
            table whose rows are probabilities; `scores:` and an ONNX file or a table, whose
            softmax over the supported items is taken.
        catalogue: the items; pi0 shows none that is novel.
        logs: the logs; `logged` needs them, others are tried at their contexts.
        contexts: for a table: the mapping of the logs, or the names of its context columns in the
            order of the logs'; () takes all columns that are not items.
    """
    if text == "uniform":
        return _uniform(catalogue)
    if text == "logged":
        return _logged(catalogue, logs)
    scores = str(text).startswith(AS_SCORES)
    path = Path(str(text).removeprefix(AS_SCORES))
    kind = path.suffix.lower()
    if path.is_dir() and not scores:
        notes = (f"pi0 is the policy saved in {path.name}",)
        given = Given(load(path, catalogue=catalogue), notes)
    elif kind == ".onnx":
        given = _onnx(path, catalogue, logs, scores)
    else:
        found = f"{short(str(text))}, {'a folder' if path.is_dir() else 'no such file'}"
        found = f"{path.name}, a file of another kind" if path.is_file() else found
        ok = kind in KINDS and path.is_file()
        require(ok, "pi0 must be named in a known way", found=found, cure=CURE, error=FileError)
        given = _table(path, catalogue, contexts, scores)
    if logs is not None:
        _try(given.policy, catalogue, logs)
    return given


def _uniform(catalogue: ActionCatalogue) -> Given:
    count = len(catalogue.supported_actions)
    note = f"pi0 shows each of the {count:,} supported items with the same probability"
    return Given(Uniform(~catalogue.novel), (note,))


def _logged(catalogue: ActionCatalogue, logs: LoggedData | None) -> Given:
    """The propensities of round 0, if they are one number per item and sum to 1."""
    if logs is None:
        raise ConfigError(
            "pi0 = logged needs the logs", found="none", cure="pass logs=, or name pi0 otherwise"
        )
    own = np.flatnonzero(logs.round == 0) if logs.round is not None else np.arange(len(logs))
    if not len(own):
        raise DataError(
            "pi0 = logged needs rows of round 0, which pi0 drew",
            column="round",
            found="none",
            cure="give the logs of pi0, or name pi0 otherwise",
        )
    action, propensity = logs.action[own], logs.propensity[own]
    items, first, which = np.unique(action, return_index=True, return_inverse=True)
    value = propensity[first]
    off = np.abs(propensity / value[which] - 1) > SAME
    if off.any():
        at = int(off.argmax())
        start = first[which[at]]
        raise DataError(
            "pi0 = logged needs one propensity per item: a policy that never looks at the context",
            column="propensity",
            row=int(own[at]),
            value=f"item {catalogue.ids[action[at]].item()!r}: {propensity[at]:.9g}, but "
            f"{propensity[start]:.9g} in row {own[start]}",
            count=int(off.sum()),
            cure="give pi0 as a saved policy, a model.onnx or a table by context; rows of several "
            "positions or policies must be told apart first",
        )
    total = float(value.sum())
    count, supported = len(items), len(catalogue.supported_actions)
    if not abs(total - 1) < SHARE * total:
        raise DataError(
            "pi0 = logged needs propensities that sum to 1 over the items, to 0.1%",
            column="propensity",
            found=f"sum {total:.6g} over the {count:,} items logged, of {supported:,} supported",
            cure="with more rows every item is logged; or give pi0 as a saved policy, a model.onnx "
            "or a table",
        )
    shares = np.zeros(len(catalogue))
    shares[items] = value
    notes = [
        f"pi0 is a fixed table of {count:,} logged propensities, one per item: an approximation "
        "if the real pi0 looked at the context or changed over time"
    ]
    never = catalogue.ids[~catalogue.novel & (shares == 0)]
    if len(never):
        names = listed_names(never.tolist())
        notes.append(f"supported items that were never logged get probability 0: {names}")
    return Given(ByItem(shares / total), tuple(notes))


def _onnx(path: Path, catalogue: ActionCatalogue, logs: LoggedData | None, scores: bool) -> Given:
    model = OnnxScores.read(path)
    columns, supported, size = model.n_actions, catalogue.supported_actions, len(catalogue)
    require(
        columns in (size, len(supported)),
        "the model must have a column for each item, or for each supported item",
        found=f"{columns:,} columns in {path.name}, {size:,} items, {len(supported):,} supported",
        cure="export it with the columns in the order of the catalogue",
        error=PolicyError,
    )
    notes = [f"pi0 is {'the softmax of ' * scores}{path.name}, SHA-256 {model.sha256[:16]}"]
    if columns != size:
        model = OnnxScores(model.content, places=supported, n_actions=size)
        notes.append("its columns are the supported items, in the order of the catalogue")
    if scores:
        return Given(SoftmaxOfScores(model, 1.0, ~catalogue.novel), tuple(notes))
    try_at = np.stack([np.zeros(model.d), np.ones(model.d)]) if logs is None else logs.contexts
    out = np.asarray(model(np.asarray(try_at[:1000], dtype=np.float32)), dtype=np.float64)
    off = ~((out >= 0).all(axis=1) & (np.abs(out.sum(axis=1) - 1) <= 1e-5))
    row = int(off.argmax())
    require(
        not off.any(),
        "the rows of the model must be probabilities, >= 0 with sum 1",
        found=f"smallest {out[row].min():g}, sum {out[row].sum():.6g} in {path.name}",
        cure=f"if they are scores whose softmax is pi0: {AS_SCORES}{path.name}",
        error=PolicyError,
    )
    return Given(OwnPolicy(model, size), tuple(notes))


def _table(path: Path, catalogue: ActionCatalogue, contexts: Contexts, scores: bool) -> Given:
    shares = None if scores else read_shares(path, catalogue, contexts)
    if shares is not None:
        note = f"pi0 is {path.name}: one probability per item, whatever the context"
        return Given(ByItem(shares), (note,))
    column = "scores" if scores else "probabilities"
    table, notes = read_table(path, catalogue, contexts, column=column)
    what = (
        f"pi0 is {'the softmax of ' * scores}{path.name}, for its {len(table.contexts):,} contexts"
    )
    if scores:
        return Given(SoftmaxOfScores(table, 1.0, ~catalogue.novel), (what, *notes))
    return Given(OwnPolicy(table, len(catalogue)), (what, *notes))


def _try(policy: BasePolicy, catalogue: ActionCatalogue, logs: LoggedData) -> None:
    """Refuse a policy that does not answer at the logs' contexts, or shows what is novel."""
    contexts = logs.contexts[:: -(-len(logs.contexts) // MOST_TRIED)]
    for _, pi in policy.distributions(contexts):
        novel = pi[:, catalogue.novel].max(axis=0, initial=0)
        place = int(novel.argmax()) if len(novel) else 0
        require(
            not novel.any(),
            "pi0 must not show a novel item",
            found=f"item {catalogue.ids[catalogue.novel_actions][place].item()!r} with probability "
            f"up to {novel[place]:.6g}"
            if novel.any()
            else "",
            cure="mark the item as not novel; or leave it out of the model's columns",
            error=PolicyError,
        )
