"""What `--pi0` means: a word, a folder, a model or a table becomes a policy that can be saved.

A table is what a team computed beforehand. By item it has one row per item, with its id and a
column `probability`. By context it has one row per context: the context columns, and one column per
item, named by the item's id; or, where the items are many, one column of lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, as_array, number_column, stacked
from depsue.data.frames import feature_matrix
from depsue.data.keys import distinct_rows
from depsue.data.logs import LoggedData
from depsue.data.mapping import LogMapping
from depsue.data.reading import contexts_of
from depsue.data.requests import Candidates, Requests
from depsue.data.tables import (
    KINDS,
    collected,
    is_text,
    listed_names,
    names_in,
    require_columns,
    scanned,
)
from depsue.errors import ConfigError, DataError, FileError, PolicyError, require, short
from depsue.onnx import OnnxScores
from depsue.policies.base import BasePolicy
from depsue.policies.chosen import ChosenPolicy
from depsue.policies.files import load
from depsue.policies.simple import BroughtPolicy, ByItem, OwnPolicy, SoftmaxOfScores, Uniform
from depsue.scores import ExternalModel, ScoreTable, imported, is_place

if TYPE_CHECKING:
    import polars as pl

MOST_CONTEXTS = 10_000_000
SHARE = 1e-3
"""Probabilities are divided by their sum if that changes none by more than 0.1%: rounding."""
SAME = 1e-6
"""Logged propensities of an item are the same if they differ by less, relatively."""
MOST_TRIED = 100_000
"""Contexts of the logs at which a policy is tried, at most."""
AS_SCORES = "scores:"
CURE = (
    "uniform; logged, as the logs tell it; chosen, of which the logs have nothing but the chosen "
    "items' probabilities; a folder of a saved policy; a model.onnx or a table of probabilities; "
    "scores:model.onnx or scores:table.parquet for scores; a function of yours, module:function, "
    "or scores:module:function"
)
Contexts = LogMapping | Sequence[str]


@dataclass(frozen=True, eq=False)
class NamedPolicy:
    """A policy that was named in words.

    Args:
        policy: the policy; it can be saved.
        notes: what it rests on, a sentence each.
    """

    policy: BasePolicy
    notes: tuple[str, ...] = ()


def named_policy(
    text: str | Path,
    catalogue: Catalogue,
    *,
    logs: LoggedData | None = None,
    contexts: Contexts = (),
) -> NamedPolicy:
    """pi0 as a command line names it.

    Args:
        text: `uniform`, the same probability for every supported item; `logged`, pi0's logged
            probabilities of the candidates, or without candidates the logged propensities as a
            fixed table by item; `chosen`, pi0 as what it chose; the folder of a saved policy; an
            ONNX file or a table whose rows are probabilities; `scores:` and an ONNX file or a
            table, whose softmax over the supported items is taken; `module:function`, or with
            `scores:` before it, a callable (m, d) contexts -> (m, A) numbers.
        catalogue: the items; pi0 shows none that is novel.
        logs: the logs; `logged` needs them, others are tried at their contexts.
        contexts: for a table: the mapping of the logs, or the names of its context columns in the
            order of the logs'; () takes all columns that are not items.
    """
    if text == "uniform":
        return _uniform(catalogue)
    if text == "logged":
        if logs is not None and logs.candidates is not None:
            return _brought(catalogue, logs.candidates)
        return _logged(catalogue, logs)
    if text == "chosen":
        note = (
            "pi0 is known by what it chose: whoever asks the service for a decision brings pi0's "
            "own choice and its probability"
        )
        return NamedPolicy(ChosenPolicy(len(catalogue)), (note,))
    scores = str(text).startswith(AS_SCORES)
    if is_place(place := str(text).removeprefix(AS_SCORES)):
        named = _imported(place, catalogue, scores)
        if logs is not None:
            _try(named.policy, catalogue, logs)
        return named
    path = Path(str(text).removeprefix(AS_SCORES))
    kind = path.suffix.lower()
    if path.is_dir() and not scores:
        notes = (f"pi0 is the policy saved in {path.name}",)
        named = NamedPolicy(load(path, catalogue=catalogue), notes)
    elif kind == ".onnx":
        named = _onnx(path, catalogue, logs, scores)
    else:
        what = f"{short(str(text))}, {'a folder' if path.is_dir() else 'no such file'}"
        what = f"{path.name}, a file of another kind" if path.is_file() else what
        ok = kind in KINDS and path.is_file()
        require(ok, "pi0 must be named in a known way", found=what, cure=CURE, error=FileError)
        named = _table(path, catalogue, contexts, scores)
    if logs is not None:
        _try(named.policy, catalogue, logs)
    return named


def _imported(place: str, catalogue: Catalogue, scores: bool) -> NamedPolicy:
    """pi0 as a function of the team's own, saved by its place alone."""
    model = ExternalModel(place, imported(place))
    note = (
        f"pi0 is {'the softmax of ' * scores}{place}: its code is in no file of the campaign, and "
        "commands that ask it take --model; another version needs another name"
    )
    if scores:
        return NamedPolicy(SoftmaxOfScores(model, 1.0, ~catalogue.novel), (note,))
    return NamedPolicy(OwnPolicy(model, len(catalogue)), (note,))


def _uniform(catalogue: Catalogue) -> NamedPolicy:
    count = len(catalogue.supported_actions)
    note = f"pi0 shows each of the {count:,} supported items with the same probability"
    return NamedPolicy(Uniform(~catalogue.novel), (note,))


def _brought(catalogue: Catalogue, candidates: Candidates) -> NamedPolicy:
    """pi0 as requests bring it."""
    require(
        candidates.pi0 is not None,
        "pi0 = logged needs pi0's probability of every candidate",
        found="candidates without probabilities",
        cure="name their column (probabilities) in the mapping; or name pi0 chosen, which needs "
        "the probability of the item that was shown alone",
        error=DataError,
    )
    pi0 = np.zeros(0) if candidates.pi0 is None else candidates.pi0
    shown = np.flatnonzero(catalogue.novel[candidates.items] & (pi0 > 0))
    place = int(shown[0]) if len(shown) else 0
    require(
        not len(shown),
        "pi0 must not show a novel item",
        found=f"item {catalogue.ids[candidates.items[place]].item()!r} with probability "
        f"{pi0[place]:.6g}",
        cure="mark the item as not novel, in a column novel of the items file; without one, items "
        "that were never logged are taken for novel",
        error=PolicyError,
    )
    note = (
        "pi0 is what requests bring: whoever asks the service for a decision sends pi0's "
        "probabilities of the candidates"
    )
    return NamedPolicy(BroughtPolicy(len(catalogue)), (note,))


def known_by(logs: LoggedData) -> BasePolicy | None:
    """pi0 as logs with candidates know it, which is all that a campaign on them needs."""
    if logs.candidates is None:
        return None
    if logs.candidates.pi0 is not None:
        return _brought(logs.catalogue, logs.candidates).policy
    return ChosenPolicy(len(logs.catalogue))


def _logged(catalogue: Catalogue, logs: LoggedData | None) -> NamedPolicy:
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
            "positions or policies must be separated first",
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
    return NamedPolicy(ByItem(shares / total), tuple(notes))


def _onnx(path: Path, catalogue: Catalogue, logs: LoggedData | None, scores: bool) -> NamedPolicy:
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
        return NamedPolicy(SoftmaxOfScores(model, 1.0, ~catalogue.novel), tuple(notes))
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
    return NamedPolicy(OwnPolicy(model, size), tuple(notes))


def _table(path: Path, catalogue: Catalogue, contexts: Contexts, scores: bool) -> NamedPolicy:
    shares = None if scores else read_shares(path, catalogue, contexts)
    if shares is not None:
        note = f"pi0 is {path.name}: one probability per item, whatever the context"
        return NamedPolicy(ByItem(shares), (note,))
    column = "scores" if scores else "probabilities"
    table, notes = read_table(path, catalogue, contexts, column=column)
    what = (
        f"pi0 is {'the softmax of ' * scores}{path.name}, for its {len(table.contexts):,} contexts"
    )
    if scores:
        return NamedPolicy(SoftmaxOfScores(table, 1.0, ~catalogue.novel), (what, *notes))
    return NamedPolicy(OwnPolicy(table, len(catalogue)), (what, *notes))


def _try(policy: BasePolicy, catalogue: Catalogue, logs: LoggedData) -> None:
    """Refuse a policy that does not answer at the logs' contexts, or shows what is novel."""
    few = logs.requests.take(np.arange(0, len(logs.contexts), -(-len(logs.contexts) // MOST_TRIED)))
    for piece, table in policy.distributions(few):
        pi = _by_item(table, few[piece], catalogue)
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


def _by_item(table: FloatArray, requests: Requests, catalogue: Catalogue) -> FloatArray:
    """(c, A) distributions; the largest of each item, (1, A), where requests bring candidates."""
    if requests.sets is None:
        return table
    most = np.zeros((1, len(catalogue)))
    np.maximum.at(most[0], requests.places(len(catalogue)).items, table)
    return most


def read_shares(path: str | Path, catalogue: Catalogue, contexts: Contexts) -> FloatArray | None:
    """(A,) a table by item: one row each, its id and a column `probability`; None if it is none."""
    frame = scanned(path)
    names = names_in(frame, path)
    likely = ("id", "item", "item_id", "action")
    action = (contexts.action,) if isinstance(contexts, LogMapping) else ()
    key = next((name for name in (*action, *likely) if name in names), None)
    if "probability" not in names or key is None or set(_context_columns(contexts)) & set(names):
        return None
    table = collected(frame, [key, "probability"], path, len(catalogue) + 1)
    place = {str(item): at for at, item in enumerate(catalogue.ids.tolist())}
    ids = [str(item) for item in table[key].to_list()]
    unknown = [item for item in ids if item not in place]
    if unknown or len(set(ids)) < len(ids):
        raise DataError(
            "a table by item has one row for each item that pi0 shows",
            column=key,
            found=f"unknown: {listed_names(unknown)}" if unknown else "an id occurs twice",
            cure="take the ids of the items file, once each",
        )
    shares = np.zeros(len(catalogue))
    shares[[place[item] for item in ids]] = number_column(table["probability"], "probability")
    return np.asarray(_distributions(shares[None], catalogue)[0])


def read_table(
    path: str | Path, catalogue: Catalogue, contexts: Contexts, *, column: str
) -> tuple[ScoreTable, tuple[str, ...]]:
    """The table in a file, its rows checked; and notes on what was settled by rule.

    Args:
        path: Parquet, CSV, TSV or Arrow.
        catalogue: the items.
        contexts: the context columns, or the mapping of the logs; () for all that are not items.
        column: "probabilities" or "scores": what the numbers are, and what lists are named.
    """
    frame = scanned(path)
    names = names_in(frame, path)
    context_columns = _context_columns(contexts)
    require_columns(context_columns, names, path, "the mapping, or contexts=[...]")
    items = {str(item): place for place, item in enumerate(catalogue.ids.tolist())}
    lists = column in names and column not in context_columns
    free = [name for name in names if name not in context_columns]
    wanted = [column] if lists else [name for name in free if name in items]
    others = [name for name in free if name not in wanted]
    whole = not isinstance(contexts, LogMapping) and not context_columns
    table = collected(
        frame, [*context_columns, *(others if whole else ()), *wanted], path, MOST_CONTEXTS
    )
    if lists:
        values = _from_lists(table[column], catalogue, column)
    else:
        values = _from_columns(table, wanted, items, catalogue, path, column)
    if column == "probabilities":
        values = _distributions(values, catalogue)
    notes = []
    if others and whole:
        notes.append(f"contexts of the table: {listed_names(others)}")
    elif others:
        notes.append(f"columns of the table that are not read: {listed_names(others)}")
    matrix = _matrix(table, contexts, others if whole else context_columns)
    return _one_row_per_context(matrix, values), tuple(notes)


def _context_columns(contexts: Contexts) -> list[str]:
    if isinstance(contexts, LogMapping):
        return [*contexts.numeric, *contexts.categorical]
    require(
        not isinstance(contexts, str),
        "contexts must be a list of columns",
        found=repr(contexts),
        cure=f"contexts=[{contexts!r}]",
    )
    return list(dict.fromkeys(contexts))


def _matrix(table: pl.DataFrame, contexts: Contexts, context_columns: list[str]) -> Any:
    """(m, d) the contexts, as the logs have them."""
    import polars as pl

    if isinstance(contexts, LogMapping):
        columns = {f"x:{name}": table[name] for name in contexts.numeric}
        columns |= {f"x:{name}": table[name].cast(pl.String) for name in contexts.categorical}
        columns["rows"] = pl.Series(np.zeros(len(table)))
        return contexts_of(pl.DataFrame(columns), contexts)
    for name in context_columns:
        if is_text(table[name]):
            raise DataError(
                "the contexts of a table must be numbers, unless a mapping says how to read text",
                column=name,
                found="text",
                cure="pass the mapping of the logs, or name the context columns",
            )
    empty = np.zeros((len(table), 1), dtype=np.float32)
    return (
        feature_matrix({name: table[name] for name in context_columns})
        if context_columns
        else empty
    )


def _from_lists(column: Any, catalogue: Catalogue, name: str) -> FloatArray:
    """(m, A) out of a column of lists."""
    values = stacked(as_array(column, name), name)
    sizes = {len(catalogue), len(catalogue.supported_actions)}
    if values.ndim != 2 or values.dtype.kind not in "fiu" or values.shape[1] not in sizes:
        raise DataError(
            "lists must have a number for each item, or for each supported item",
            column=name,
            found=f"shape {values.shape}, type {values.dtype}",
            cure=f"lists of {' or '.join(map(str, sorted(sizes)))}, in the order of the catalogue",
        )
    return _placed(np.asarray(values, dtype=np.float64), catalogue)


def _from_columns(
    table: pl.DataFrame,
    wanted: list[str],
    items: dict[str, int],
    catalogue: Catalogue,
    path: str | Path,
    column: str,
) -> FloatArray:
    """(m, A) out of a column per item; new items may be left out."""
    out = np.zeros((len(table), len(catalogue)))
    for name in wanted:
        out[:, items[name]] = number_column(table[name], name)
    missing = [n for n, place in items.items() if n not in wanted and not catalogue.novel[place]]
    if missing:
        raise DataError(
            f"a table of {column} needs a column for every supported item, named by its id",
            column=missing[0],
            found=f"{len(missing):,} of them are not in {Path(path).name}",
            cure=f"write one column per item (zeros for what is never shown), or one column "
            f"'{column}' of lists",
        )
    return out


def _placed(values: FloatArray, catalogue: Catalogue) -> FloatArray:
    """(m, A) out of (m, A) numbers, or out of one for each supported action; the rest is 0."""
    if values.shape[1] == len(catalogue):
        return values
    out = np.zeros((len(values), len(catalogue)))
    out[:, catalogue.supported_actions] = values
    return out


def _distributions(values: FloatArray, catalogue: Catalogue) -> FloatArray:
    """(m, A) the rows, each with sum 1; refuses what pi0 cannot be."""
    new = catalogue.novel & (values != 0)
    for bad, rule, cure in (
        (~(values >= 0) | np.isinf(values), "probabilities must be >= 0", "give scores as scores:"),
        (new, "pi0 must not show a novel item", "write 0, or mark the item as not novel"),
    ):
        if bad.any():
            row, place = (int(index) for index in np.argwhere(bad)[0])
            name, value = str(catalogue.ids[place]), float(values[row, place])
            count = int(bad.any(axis=1).sum())
            raise DataError(rule, column=name, row=row, value=value, count=count, cure=cure)
    total = values.sum(axis=1)
    off = ~(np.abs(total - 1) < SHARE * total)
    if off.any():
        row, count = int(off.argmax()), int(off.sum())
        raise DataError(
            "the probabilities of a row must sum to 1",
            column="probabilities",
            row=row,
            value=f"sum {total[row]:.6g}",
            count=count,
            cure="write all digits; give scores as scores:",
        )
    return np.asarray(values / total[:, None])


def _one_row_per_context(matrix: Any, values: FloatArray) -> ScoreTable:
    """The table, with repeated contexts once; two answers for one context are refused."""
    distinct, which = distinct_rows(np.asarray(matrix, dtype=np.float32))
    _, first = np.unique(which, return_index=True)
    other = (values != values[first][which]).any(axis=1)
    if other.any():
        row = int(other.argmax())
        raise DataError(
            "a context must have one row of numbers",
            column="context",
            row=row,
            value=matrix[row].tolist(),
            count=int(other.sum()),
            cure=f"row {int(first[which[row]])} has the same context and other numbers: keep one",
        )
    return ScoreTable(distinct, values[first])
