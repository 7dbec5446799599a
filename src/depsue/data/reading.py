"""Logs out of files: open a source, look at it through a mapping, bring its rows into memory.

::

    open_source(path)              Source: a file, a folder or a pattern, as a lazy table
    mapped(source, mapping)        a lazy table with our column names, whatever the team's are
    read_mapped(source, mapping)   LoggedData: the rows in memory, checked

polars scans Parquet, CSV, TSV and Arrow (Feather), so a pass streams and reads only the columns
that it needs. VW's dsjson is parsed line by line (`dsjson.py`).

A new format needs its endings in `ALL_KINDS`, a reader that returns a polars frame (a file of its
own, as `dsjson.py`), and a branch in `open_source`. One that polars scans itself goes to
`tables.py`: its ending in `KINDS` and a branch in `scan`.
"""

from __future__ import annotations

import glob as globs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.checks import finite_matrix, naming, plain_ids
from depsue.data.dsjson import BadLine, read_dsjson
from depsue.data.folds import fold_of_keys, keys_of_ids
from depsue.data.frames import feature_matrix
from depsue.data.lists import AS_JSON, candidates_in, candidates_of
from depsue.data.logs import LoggedData
from depsue.data.mapping import LISTS, ROLES, EstimatedPropensities, LogMapping, in_units
from depsue.data.open_bandit import NEEDED
from depsue.data.pages import as_pages
from depsue.data.requests import Candidates
from depsue.data.tables import (
    KINDS,
    MOST_NUMBERS,
    exact,
    frame_of,
    is_numeric,
    is_text,
    names_in,
    require_columns,
    scan,
    tried,
)
from depsue.errors import DataError, FileError, require, short
from depsue.plural import counted

if TYPE_CHECKING:
    import polars as pl

DSJSON = (".dsjson", ".json", ".jsonl", ".ndjson")
ALL_KINDS = (*KINDS, *DSJSON)
FAMILY = {".pq": ".parquet", ".feather": ".arrow", ".ipc": ".arrow"} | dict.fromkeys(
    DSJSON, ".dsjson"
)
"""Endings that mean the same."""

OPTIONAL = {
    **{"units": "unit", "times": "time", "decisions": "decision", "rounds": "round"},
    **{"by_pi0": "by_pi0", "versions": "version"},
}
"""Arguments of `LoggedData.from_arrays` by role."""
LISTS_AT_ONCE = 16_384
"""Rows whose lists of candidates are in memory at a time."""
MOST_ROWS = 50_000_000
"""Rows that are brought into memory at most."""
ESTIMATING = 0.3
"""Share of units, or rows, that propensities are estimated on, where none were logged."""
SPLIT, SALT = np.array([ESTIMATING, 1 - ESTIMATING]), "depsue estimated propensities"
SPREAD = 2_654_435_769
"""2^32 over the golden ratio: multiples of it are spread evenly, whatever their order means."""
MOST_GROUPS = 2_000_000
"""Pairs of an action and a group that propensities are estimated for, at most."""


@dataclass(frozen=True, eq=False)
class Source:
    """Rows that can be read again and again, piece by piece.

    Args:
        name: what errors call it.
        kind: ".parquet", ".csv", ".tsv", ".arrow", ".dsjson" or "frame".
        frame: the lazy table.
        names: the names of its columns.
        paths: the files that it is made of; () for a frame.
        bad_lines: lines of dsjson that could not be read.
        pages: whether its rows are pages already (`depsue.data.pages`).
        notes: what was settled while they were read, a sentence each.
        items: the items that lines of dsjson describe, a row each; None of other kinds.
    """

    name: str
    kind: str
    frame: pl.LazyFrame
    names: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    bad_lines: tuple[BadLine, ...] = ()
    pages: bool = False
    notes: tuple[str, ...] = ()
    items: pl.DataFrame | None = None

    @property
    def files(self) -> int:
        """How many files it is made of; a frame counts as one."""
        return max(len(self.paths), 1)

    def collect(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """What a query over this source computes, by streaming; else a FileError."""
        table: pl.DataFrame = tried(lambda: frame.collect(engine="streaming"), self.name)
        return table

    @classmethod
    def of(cls, frame: Any, name: str = "frame") -> Source:
        """A polars frame, lazy or not, a pandas or Arrow frame, or a dict of columns."""
        import polars as pl

        if not isinstance(frame, pl.LazyFrame):
            frame = frame_of(frame, name).lazy()
        return cls(name, "frame", frame, tuple(names_in(frame, name)))

    @classmethod
    def of_obp(cls, feedback: Mapping[str, Any]) -> Source:
        """The `bandit_feedback` dict of Open Bandit Pipeline: contexts become x0, x1, ..."""
        for key in NEEDED[1:]:
            if not isinstance(feedback, Mapping) or feedback.get(key) is None:
                raise DataError(
                    f"bandit feedback needs {', '.join(NEEDED[1:])}",
                    column=key,
                    found="none",
                    cure="pass the dict that obp's obtain_batch_bandit_feedback returns",
                )
        matrix = finite_matrix(feedback["context"], "context")
        columns = {name: feedback[name] for name in ("action", "reward", "pscore")}
        if feedback.get("position") is not None:
            columns["position"] = feedback["position"]
        columns |= {f"x{k}": matrix[:, k] for k in range(matrix.shape[1])}
        return cls.of(columns, "bandit_feedback")


def open_source(path: str | Path) -> Source:
    """Open a file, all files of a folder, or those that a pattern with * ? [ ] matches."""
    files = _files(path)
    kinds = {FAMILY.get(file.suffix.lower(), file.suffix.lower()) for file in files}
    require(
        len(kinds) == 1,
        "the files must be of one kind",
        found=f"{', '.join(sorted(kinds))} in {path}",
        cure="name them by a pattern, for example 'logs/*.parquet'",
        error=FileError,
    )
    kind = kinds.pop()
    for file in files:
        require(
            file.stat().st_size > 0,
            "the file must not be empty",
            found=file,
            cure="give files with rows, or leave this one out",
            error=FileError,
        )
        if kind == ".arrow":
            _require_arrow(file)
    if kind == ".dsjson":
        lines = read_dsjson(files)
        return Source(
            str(path),
            kind,
            lines.table.lazy(),
            tuple(lines.table.columns),
            tuple(files),
            lines.bad,
            notes=lines.notes,
            items=lines.items,
        )
    frames = scan(files, kind)
    names = names_in(frames, path)
    return Source(str(path), kind, frames, tuple(names), tuple(files))


def mapped(source: Source, mapping: LogMapping, without: Sequence[int | str] = ()) -> pl.LazyFrame:
    """A lazy table: action, reward, propensity; what else is named of unit, time and so on.

    The mapping's own words could clash with these, so contexts are named "x:" and their name,
    other rewards and segments "k:" and theirs, groups of estimated propensities "g:" and theirs.
    Where the mapping declares it, rewards are shifted and capped, rows of other positions are left
    out, and propensities are estimated or divided by the share of decisions that was kept. Rows of
    units in `without` are left out as if the files did not have them.
    """
    import polars as pl

    source = as_pages(source, mapping)
    require_columns(mapping.columns, list(source.names), source.name, "the mapping")
    head = source.collect(source.frame.head(0))
    columns = {
        role: exact(name)
        for role in ROLES
        if role != "time" and (name := getattr(mapping, role)) is not None
    }
    _require_types(head, mapping)
    reward = columns["reward"].cast(pl.Float64) + mapping.shift
    columns["reward"] = reward if mapping.cap is None else reward.clip(upper_bound=mapping.cap)
    for role in ("propensity", "round", "by_pi0"):
        if role in columns:
            columns[role] = columns[role].cast(pl.Float64)
    if mapping.kept < 1:
        columns["propensity"] = columns["propensity"] / mapping.kept
        if "by_pi0" in columns:
            columns["by_pi0"] = columns["by_pi0"] / mapping.kept
    if "version" in columns:
        columns["version"] = columns["version"].cast(pl.String)
    for role in ("action", "unit", "decision"):
        if role in columns and is_text(head[getattr(mapping, role)]):
            columns[role] = columns[role].cast(pl.String)
    if mapping.time is not None:
        columns["time"] = _time(source, mapping.time)
    for name in mapping.numeric:
        columns[f"x:{name}"] = exact(name).cast(pl.Float64)
    for name in mapping.categorical:
        columns[f"x:{name}"] = exact(name).cast(pl.String)
    for name in (*mapping.other_rewards, *mapping.segments):
        columns[f"k:{name}"] = exact(name)
    groups = mapping.estimated.groups if mapping.estimated else ()
    columns |= {f"g:{name}": exact(name) for name in groups}
    frame = source.frame.select(column.alias(name) for name, column in columns.items())
    if without:
        frame = frame.filter(~pl.col("unit").is_in(list(without)).fill_null(False))
    if mapping.keep_position is not None:
        frame = _one_position(source, frame, mapping)
    if mapping.until is not None:
        frame = frame.filter(_no_later(source, frame, mapping.until))
    if mapping.estimated is not None:
        frame = _with_estimates(source, frame, mapping.estimated)
    if mapping.simulated is not None:
        frame = frame.with_columns(estimating=pl.lit(False))
    return frame


def read_mapped(
    source: Source,
    mapping: LogMapping,
    catalogue: Catalogue,
    round: int | None = None,
    without: Sequence[int | str] = (),
) -> LoggedData:
    """The logs in memory, checked row by row.

    Args:
        source: where they are.
        mapping: which column is what.
        catalogue: the actions.
        round: that all rows are of; None as the mapping says.
        without: ids of units whose rows are left out.
    """
    import polars as pl

    require_one_position(source, mapping)
    frame = mapped(source, mapping, without)
    width = len(mapping.columns) + sum(len(values) for values in mapping.categorical.values())
    rows = int(source.collect(frame.select(pl.len())).item())
    require_old_enough(rows, source, mapping)
    require(
        0 < rows <= MOST_ROWS and rows * width <= MOST_NUMBERS,
        f"logs may have 1 to {MOST_ROWS:,} rows and {MOST_NUMBERS:,} numbers in memory",
        found=f"{rows:,} rows of {width} columns in {source.name}",
        cure="take a sample of the units, fewer context columns, or check the position",
    )
    lists = [role for role in LISTS if getattr(mapping, role) is not None]
    table = source.collect(frame.drop(lists))
    if round is not None:
        table = table.with_columns(round=pl.lit(float(round)))
    return logs_of(table, mapping, catalogue, _candidates(source, frame, mapping, catalogue))


def _candidates(
    source: Source, frame: pl.LazyFrame, mapping: LogMapping, catalogue: Catalogue
) -> Candidates | None:
    """The candidates of all rows, read some rows at a time; None where all items always are."""
    if mapping.candidates is None:
        return None
    with naming(_names(mapping)):
        return candidates_in(list_batches(source, frame, mapping), catalogue, mapping.given_as)


def list_batches(
    source: Source, frame: pl.LazyFrame, mapping: LogMapping
) -> Iterator[tuple[pl.Series, pl.Series | None]]:
    """Candidates, and pi0's probabilities of them where mapped, of some rows at a time."""
    lists = frame.select(role for role in LISTS if getattr(mapping, role) is not None)
    for batch in in_batches(source, lists):
        yield batch["candidates"], batch["probabilities"] if mapping.probabilities else None


def in_batches(source: Source, frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """What a query over lists computes, some rows at a time."""
    batches = tried(
        lambda: frame.collect_batches(chunk_size=LISTS_AT_ONCE, engine="streaming"), source.name
    )
    while (batch := tried(lambda: next(batches, None), source.name)) is not None:
        yield batch


def _names(mapping: LogMapping) -> dict[str, str]:
    """What the team calls the columns."""
    return {role: getattr(mapping, role) or role for role in ROLES if role != "position"}


def read_from(
    path: str | Path, mapping: LogMapping, catalogue: Catalogue, round: int | None = None
) -> LoggedData:
    """The logs of a file, a folder or a pattern, through a mapping."""
    return read_mapped(open_source(path), mapping, catalogue, round)


def require_old_enough(rows: int, source: Source, mapping: LogMapping) -> None:
    """Refuse logs of which no row is older than the reward window."""
    require(
        rows > 0 or mapping.until is None,
        "some rows must be older than the reward window",
        found=f"none of {source.name} at {mapping.until or ''}",
        cure="wait, or declare the window that rewards need; times without a zone are UTC, and "
        "numbers are seconds since 1970",
    )


def count_rows(source: Source, mapping: LogMapping) -> int:
    """How many rows a source has through a mapping."""
    import polars as pl

    frame = mapped(source, replace(mapping, estimated=None))
    return int(source.collect(frame.select(pl.len())).item())


def words_on_younger(source: Source, mapping: LogMapping) -> tuple[str, ...]:
    """A note on rows that are left out as younger than the reward window; () if none are."""
    if mapping.window is None or mapping.until is None:
        return ()
    count = count_rows(source, replace(mapping, until=None)) - count_rows(source, mapping)
    if not count:
        return ()
    return (
        f"{counted(count, 'row')} younger than the reward window of {in_units(mapping.window)} "
        f"left out: later than {mapping.until:%Y-%m-%d %H:%M:%S} UTC",
    )


def logs_of(
    table: pl.DataFrame,
    mapping: LogMapping,
    catalogue: Catalogue,
    candidates: Candidates | None = None,
) -> LoggedData:
    """Rows of a mapped table as logs; their candidates are in the table, or read already."""
    require(
        "propensity" in table.columns,
        "logs need propensities",
        found="none in the mapping",
        cure="name their column, or have them estimated: depsue check --estimate-propensities "
        "--write-mapping m.toml, then --mapping m.toml",
    )
    optional: dict[str, Any] = {
        argument: table[role] for argument, role in OPTIONAL.items() if role in table.columns
    }
    others = {name[2:]: table[name] for name in table.columns if name.startswith("k:")}
    with naming(_names(mapping)):
        if candidates is None and "candidates" in table.columns:
            shares = table["probabilities"] if "probabilities" in table.columns else None
            candidates = candidates_of(table["candidates"], shares, catalogue, mapping.given_as)
        return LoggedData.from_arrays(
            contexts=contexts_of(table, mapping),
            actions=table["action"],
            rewards=table["reward"],
            propensities=table["propensity"],
            catalogue=catalogue,
            r_max=mapping.r_max,
            columns=others,
            estimating=table["estimating"] if "estimating" in table.columns else None,
            candidates=candidates,
            **optional,
        )


def contexts_of(table: pl.DataFrame, mapping: LogMapping) -> Any:
    """(n, d) the numeric contexts, then one column for each declared value; (n, 1) zeros if none"""
    numbers = {name: table[f"x:{name}"] for name in mapping.numeric}
    blocks = [feature_matrix(numbers)] if numbers else []
    for name, values in mapping.categorical.items():
        column = table[f"x:{name}"].fill_null("")
        flags = [(column == value).to_numpy() for value in values]
        blocks += [np.stack(flags, axis=1).astype(np.float32)] if flags else []
    empty = np.zeros((len(table), 1), dtype=np.float32)
    return np.concatenate(blocks, axis=1) if blocks else empty


def require_one_position(source: Source, mapping: LogMapping) -> None:
    """Refuse slates: rows of several positions where the mapping does not choose one."""
    if mapping.position is None or mapping.keep_position is not None:
        return
    require_columns([mapping.position], list(source.names), source.name, "the mapping")
    frame = source.frame.select(exact(mapping.position).unique().alias("position"))
    positions = source.collect(frame).to_series().drop_nulls().sort().to_list()
    if len(positions) > 1:
        shown = ", ".join(map(str, positions[:8])) + ", ..." * (len(positions) > 8)
        raise DataError(
            "slates are not supported yet: rows must be of one position",
            column=mapping.position,
            found=f"positions {shown}",
            cure=f"choose one: position = {positions[0]!r} in the mapping, which depsue check "
            f"writes with --position {positions[0]} --write-mapping m.toml; or name the column of "
            "the page in [pages], and the slot that is decided; or, if the item at one position "
            "does not change what another earns, make it a context",
        )


def _files(path: str | Path) -> list[Path]:
    """The files, in the order of their names; hidden ones and markers (_SUCCESS) are left out."""
    place = Path(path)
    cure = f"give a file, a folder or a pattern of {', '.join(ALL_KINDS)}"
    try:
        if place.is_dir():
            files = [
                file
                for file in sorted(place.rglob("*"))
                if file.is_file()
                and not any(part[0] in "._" for part in file.relative_to(place).parts)
                and file.suffix.lower() in ALL_KINDS
            ]
        elif place.exists() or not globs.has_magic(str(path)):
            files = [place] if place.exists() else []
        else:
            matches = [Path(name) for name in sorted(globs.glob(str(path), recursive=True))]
            files = [file for file in matches if file.is_file()]
    except (OSError, ValueError) as problem:
        raise FileError("the path must be readable", found=f"{problem}", cure=cure) from problem
    rule = "there must be a file to read"
    require(bool(files), rule, found=f"none at {path}", cure=cure, error=FileError)
    for file in files:
        rule = f"the file must be one of {', '.join(ALL_KINDS)}"
        ok = file.suffix.lower() in ALL_KINDS and file.is_file()
        require(ok, rule, found=file.name, cure="convert it to Parquet", error=FileError)
    return files


def _require_arrow(file: Path) -> None:
    """Refuse Arrow files on which polars panics: another format, or a name that is there twice."""
    import pyarrow as pa
    from pyarrow import ipc

    rule, cure = "the file must be an Arrow IPC file with distinct column names", "write it anew"
    try:
        with pa.memory_map(str(file)) as content:
            names = ipc.open_file(content).schema.names
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise FileError(rule, found=f"{file}: {short(str(problem))}", cure=cure) from problem
    twice = sorted({name for name in names if names.count(name) > 1})
    require(not twice, rule, found=f"{twice} twice in {file}", cure=cure, error=FileError)


def _require_types(head: pl.DataFrame, mapping: LogMapping) -> None:
    numbers = [mapping.reward, mapping.propensity, mapping.round, mapping.by_pi0, *mapping.numeric]
    for name in [*numbers, *mapping.other_rewards]:
        if name is not None and not (is_numeric(head[name]) and not head[name].dtype.is_nested()):
            cure = "write it as numbers; text can be a categorical context or a segment"
            _refuse("the column must hold numbers", name, head, cure)
    for name in (mapping.action, mapping.unit, mapping.decision, mapping.version):
        if name and not (head[name].dtype.is_numeric() or is_text(head[name])):
            _refuse("ids must be whole numbers or text", name, head, "cast the column")
    for name in (mapping.candidates, mapping.probabilities):
        if name and not (head[name].dtype.is_nested() or is_text(head[name])):
            _refuse("the column must hold one list in each row", name, head, AS_JSON)
    groups = mapping.estimated.groups if mapping.estimated else ()
    for name in (*mapping.categorical, *mapping.segments, *groups):
        if head[name].dtype.is_nested():
            _refuse("the column must hold one value a row", name, head, "cast the column")


def _refuse(rule: str, name: str, head: pl.DataFrame, cure: str) -> None:
    raise DataError(rule, column=name, found=f"type {head[name].dtype}", cure=cure)


def _time(source: Source, name: str) -> pl.Expr:
    """Times as they are, or out of text such as 2019-11-24 00:00:34.76+00:00, as UTC."""
    import polars as pl

    column = exact(name).alias("time")
    first = source.collect(source.frame.select(column.drop_nulls().head(1))).to_series()
    if first.dtype.is_temporal() or first.dtype.is_numeric():
        return column
    if not is_text(first):
        head = first.alias(name).to_frame()
        _refuse("times must be times, numbers or text", name, head, "cast the column")
    plain = column.cast(pl.String).str.replace("T", " ", literal=True)
    plain = plain.str.replace("Z$", "+00:00")
    sample = source.collect(source.frame.select(plain.drop_nulls().head(1))).to_series()
    text = str(sample[0]) if len(sample) else ""
    form = "%Y-%m-%d" if " " not in text else "%Y-%m-%d %H:%M:%S%.f"
    zoned = " " in text and any(sign in text[11:] for sign in "+-")
    read = plain.str.to_datetime(form + "%z" * zoned, time_unit="us", strict=False)
    return read.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else read


def _no_later(source: Source, frame: pl.LazyFrame, until: datetime) -> pl.Expr:
    """Whether a row's time is at most `until`; a date counts as its last moment.

    Times without a zone are UTC, and numbers are seconds since 1970.
    """
    import polars as pl

    kind = source.collect(frame.select("time").head(0))["time"].dtype
    time = pl.col("time")
    if kind.is_numeric():
        return time <= until.timestamp()
    if kind == pl.Date:
        time, kind = time.cast(pl.Datetime("us")) + pl.duration(days=1), pl.Datetime("us")
    if getattr(kind, "time_zone", None) is None:
        until = until.astimezone(UTC).replace(tzinfo=None)
    return time <= pl.lit(until)


def _one_position(source: Source, frame: pl.LazyFrame, mapping: LogMapping) -> pl.LazyFrame:
    import polars as pl

    require(
        mapping.position is not None,
        "a position needs a column of positions",
        found=f"position = {mapping.keep_position!r}",
        cure='position = "..." in [columns]',
    )
    chosen = frame.filter(pl.col("position").cast(pl.String) == str(mapping.keep_position))
    if source.collect(chosen.head(1)).is_empty():
        raise DataError(
            "the position must occur in the logs",
            column=str(mapping.position),
            found=f"no row with {mapping.keep_position!r}",
            cure="choose one that does",
        )
    return chosen


def _with_estimates(
    source: Source, frame: pl.LazyFrame, how: EstimatedPropensities
) -> pl.LazyFrame:
    """The table with estimated propensities, and which rows they were estimated on.

    A fixed share of the units is taken for it (of the rows, where there are no units). These rows
    never certify: a verdict must not read what its weights were made of.
    """
    import polars as pl

    if "unit" in frame.collect_schema().names():
        units = source.collect(frame.select(pl.col("unit").drop_nulls().unique()))["unit"]
        chosen = fold_of_keys(keys_of_ids(plain_ids(units, "unit")), SPLIT, SALT) == 0
        mine = pl.col("unit").is_in(units.filter(pl.Series(chosen)).implode()).fill_null(False)
        frame = frame.with_columns(estimating=mine)
    else:
        number = pl.col("estimating").cast(pl.UInt64)
        frame = frame.with_row_index("estimating").with_columns(
            estimating=(number * SPREAD + SPREAD) % 2**32 < int(ESTIMATING * 2**32)
        )
    groups = [f"g:{name}" for name in how.groups]
    keys = ["action", *groups]
    counts = source.collect(frame.group_by(keys).agg(count=pl.col("estimating").sum()))
    require(
        len(counts) <= MOST_GROUPS,
        f"there may be {MOST_GROUPS:,} pairs of an action and a group",
        found=f"{len(counts):,}",
        cure="name columns with fewer values as groups",
    )
    size, s = counts["action"].n_unique(), how.smoothing
    total = pl.col("count").sum().over(groups) if groups else pl.col("count").sum()
    share = (pl.col("count") + s) / (total + s * size)
    table = counts.select(*keys, propensity=share)
    joined = frame.join(table.lazy(), on=keys, how="left", nulls_equal=True, maintain_order="left")
    return joined.drop(groups)
