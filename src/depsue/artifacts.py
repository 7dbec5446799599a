"""Trained things on disk: a folder with one safetensors file and a manifest.

The manifest names every file with its SHA-256 and carries its own, so that a flipped bit or a
truncated file is refused (safetensors alone does not notice). Nothing is unpickled. The manifest
is written last and moved into place, so a folder holds the old thing or the new one, never half.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from depsue._version import __version__
from depsue.errors import FileError
from depsue.files import write_file

FORMAT = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 16 << 20

Arrays = dict[str, np.ndarray[Any, Any]]


def write(
    folder: str | Path, *, family: str, kind: str, settings: dict[str, Any], arrays: Arrays
) -> None:
    """Write a trained thing to `folder`, replacing one that is there.

    Args:
        folder: where; created if need be.
        family: "policy" or "reward model".
        kind: which member of the family.
        settings: JSON values.
        arrays: named arrays.
    """
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    sha = hashlib.sha256(content).hexdigest()
    name = f"arrays-{sha[:16]}.safetensors"
    body = {
        "format": FORMAT,
        "family": family,
        "kind": kind,
        "settings": settings,
        "files": {name: {"sha256": sha, "bytes": len(content)}},
        "depsue": __version__,
    }
    manifest = json.dumps({"manifest": body, "sha256": _body_hash(body)}, indent=1)
    target = Path(folder)
    replaced = _file_names(target)
    write_file(target / name, content)
    write_file(target / MANIFEST, manifest.encode())
    for old in replaced - {name}:  # never what another writer has just put there
        with suppress(OSError):
            (target / old).unlink(missing_ok=True)


def read(folder: str | Path, *, family: str) -> tuple[str, dict[str, Any], Arrays]:
    """(kind, settings, arrays) of the thing in `folder`, every byte checked."""
    target = Path(folder)
    body = _read_manifest(target)
    if body.get("family") != family:
        raise FileError(
            f"the folder must hold a {family}", found=f"a {body.get('family')} in {target}"
        )
    arrays: Arrays = {}
    try:
        for name, facts in body["files"].items():
            arrays.update(_read_arrays(target, name, facts))
        return str(body["kind"]), dict(body["settings"]), arrays
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise FileError(
            "a manifest must name kind, settings and files with bytes and sha256",
            found=f"{target / MANIFEST}: {type(problem).__name__} {problem}",
            cure="restore it from a copy, or save it again",
        ) from problem


def _read_manifest(target: Path) -> dict[str, Any]:
    path = target / MANIFEST
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_MANIFEST)
    except OSError as problem:
        raise FileError(
            "the folder must hold a saved thing with its manifest",
            found=f"{path}: {problem.strerror}",
            cure="check the path, or save it again",
        ) from problem
    try:
        whole = json.loads(text)
        body, sha = whole["manifest"], whole["sha256"]
        intact = isinstance(body, dict) and _body_hash(body) == sha
    except (ValueError, KeyError, TypeError, RecursionError):
        intact, body = False, None
    if isinstance(body, dict) and type(body.get("format")) is int and body["format"] != FORMAT:
        raise FileError(
            f"this version reads manifests of format {FORMAT}",
            found=f"format {body['format']} in {path}, written by depsue {body.get('depsue')}",
            cure="use the version of depsue that wrote it, or save it again",
        )
    if not intact or not isinstance(body, dict) or type(body.get("format")) is not int:
        raise FileError(
            "a manifest must match its own SHA-256",
            found=f"{path} is damaged",
            cure="restore it from a copy, or save it again",
        )
    return body


def _file_names(target: Path) -> set[str]:
    """The files of the thing that is in the folder now; none if there is nothing sound."""
    try:
        return {Path(name).name for name in _read_manifest(target)["files"]}
    except (FileError, KeyError, TypeError):
        return set()


def _read_arrays(target: Path, name: str, facts: dict[str, Any]) -> Arrays:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = target / Path(name).name
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size == facts["bytes"] else b""
    except OSError as problem:
        raise FileError(
            "every file of the manifest must be there", found=f"{path}: {problem.strerror}"
        ) from problem
    if size != facts["bytes"] or hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise FileError(
            "every file must match the SHA-256 of its manifest",
            found=f"{path} ({size:,} bytes, {facts['bytes']:,} expected) is damaged or truncated",
            cure="restore it from a copy, or save it again",
        )
    try:
        loaded: Arrays = load(content)
    except SafetensorError as problem:
        raise FileError("the file must be safetensors", found=f"{path}: {problem}") from problem
    return loaded


def _body_hash(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
