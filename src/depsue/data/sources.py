"""Logs where they lie: one file, a folder or a glob, of one kind, opened as a lazy table.

Parquet, CSV, TSV and Arrow (Feather) are scanned by polars, so that a pass over them streams and
reads only the columns that it asks for. VW's dsjson is parsed line by line (`dsjson.py`).
"""

from __future__ import annotations

import glob as globs
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depsue.data.tables import KINDS, names_in, scan, tried
from depsue.errors import DataError, FileError, require, short

if TYPE_CHECKING:
    import polars as pl

    from depsue.data.dsjson import BadLine

DSJSON = (".dsjson", ".json", ".jsonl", ".ndjson")
ALL_KINDS = (*KINDS, *DSJSON)
FAMILY = {".pq": ".parquet", ".feather": ".arrow", ".ipc": ".arrow"} | dict.fromkeys(
    DSJSON, ".dsjson"
)
"""Endings that mean the same."""


@dataclass(frozen=True, eq=False)
class Source:
    """Rows that can be read again and again, a part at a time.

    Args:
        name: what errors call it.
        kind: ".parquet", ".csv", ".tsv", ".arrow", ".dsjson" or "frame".
        frame: the lazy table.
        names: the names of its columns.
        files: how many files it is made of.
        bad_lines: lines of dsjson that could not be read.
    """

    name: str
    kind: str
    frame: pl.LazyFrame
    names: tuple[str, ...]
    files: int = 1
    bad_lines: tuple[BadLine, ...] = ()

    def collect(self, frame: pl.LazyFrame) -> pl.DataFrame:
        """What a query over this source computes, by streaming; else a FileError."""
        found: pl.DataFrame = tried(lambda: frame.collect(engine="streaming"), self.name)
        return found

    @classmethod
    def of(cls, frame: Any, name: str = "frame") -> Source:
        """A polars frame, lazy or not, a pandas or Arrow frame, or a dict of columns."""
        import polars as pl

        if not isinstance(frame, pl.LazyFrame):
            try:
                frame = pl.DataFrame(frame).lazy()
            except Exception as problem:  # whatever a foreign frame raises
                raise DataError(
                    "a frame must be something that polars can read",
                    column=name,
                    found=short(str(problem)),
                    cure="pass a polars, pandas or Arrow frame, or a dict of columns",
                ) from problem
        return cls(name, "frame", frame, tuple(names_in(frame, name)))

    @classmethod
    def of_obp(cls, feedback: Mapping[str, Any]) -> Source:
        """The `bandit_feedback` dict of Open Bandit Pipeline: contexts become x0, x1, ..."""
        from depsue.data.checks import finite_matrix
        from depsue.data.obp import NEEDED

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
        from depsue.data.dsjson import read_dsjson

        frame, bad = read_dsjson(files)
        return Source(str(path), kind, frame.lazy(), tuple(frame.columns), len(files), bad)
    frames = scan(files, kind)
    names = names_in(frames, path)
    return Source(str(path), kind, frames, tuple(names), len(files))


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


def _files(path: str | Path) -> list[Path]:
    """The files, in the order of their names; hidden ones and markers (_SUCCESS) are left out."""
    place = Path(path)
    cure = f"give a file, a folder or a pattern of {', '.join(ALL_KINDS)}"
    try:
        if place.is_dir():
            found = [
                file
                for file in sorted(place.rglob("*"))
                if file.is_file()
                and not any(part[0] in "._" for part in file.relative_to(place).parts)
                and file.suffix.lower() in ALL_KINDS
            ]
        elif place.exists() or not globs.has_magic(str(path)):
            found = [place] if place.exists() else []
        else:
            found = [Path(one) for one in sorted(globs.glob(str(path), recursive=True))]
            found = [file for file in found if file.is_file()]
    except (OSError, ValueError) as problem:
        raise FileError("the path must be readable", found=f"{problem}", cure=cure) from problem
    rule = "there must be a file to read"
    require(bool(found), rule, found=f"none at {path}", cure=cure, error=FileError)
    for file in found:
        rule = f"the file must be one of {', '.join(ALL_KINDS)}"
        ok = file.suffix.lower() in ALL_KINDS and file.is_file()
        require(ok, rule, found=file.name, cure="convert it to Parquet", error=FileError)
    return found
