"""Finished work in a file of lines, so that a run goes on where it was interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from depsue.errors import FileError

Result = dict[str, Any]
"""A JSON object with a "key" that names what it is of, and a "config", a hash of its settings."""


def keep(result: Result, path: Path) -> None:
    """Add what is finished; it is on the disk when this returns."""
    with path.open("ab") as file:
        file.write((json.dumps(result) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def finished(path: Path, wanted: Mapping[str, str]) -> dict[str, Result]:
    """Of what is wanted (key: config), the results that are there, in the order of `wanted`.

    A last line that was cut off by an interrupt is removed. The code is not part of a config:
    after a change of it, start with another file.
    """
    if not path.exists():
        return {}
    found: dict[str, Result] = {}
    *lines, rest = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        result = _read(line, f"{path}, line {number}")
        if wanted.get(result["key"]) == result["config"]:
            found[result["key"]] = result
    if rest:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    return {key: found[key] for key in wanted if key in found}


def _read(line: bytes, where: str) -> Result:
    try:
        result: Result = json.loads(line)
        if type(result["key"]) is not str or type(result["config"]) is not str:
            raise ValueError("key and config must be text")
        return result
    except (ValueError, TypeError, KeyError) as problem:
        raise FileError(
            "a line of finished work must be a JSON object with a key and a config",
            found=f"{where}: {type(problem).__name__} {problem}",
            cure="delete that line, and it is run again",
        ) from problem
