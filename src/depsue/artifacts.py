"""Trained things on disk: a folder with one safetensors file and a manifest.

The manifest names every file with its SHA-256 and carries its own, so that a flipped bit or a
truncated file is refused (safetensors alone does not notice). Nothing is unpickled. The manifest
is written last and moved into place, so a folder holds the old thing or the new one, never half.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from depsue import codec
from depsue._version import __version__
from depsue.errors import FileError
from depsue.files import write_file

FORMAT = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 16 << 20

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class SavedFile:
    """A file beside the manifest."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """What is in a folder.

    Args:
        format: of the manifest.
        family: "policy" or "reward model".
        kind: which member of the family.
        settings: JSON values.
        files: by name.
        depsue: the version that wrote it.
    """

    format: int
    family: str
    kind: str
    settings: dict[str, Any]
    files: dict[str, SavedFile]
    depsue: str


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
    file = SavedFile(hashlib.sha256(content).hexdigest(), len(content))
    name = f"arrays-{file.sha256[:16]}.safetensors"
    body = codec.plain(Manifest(FORMAT, family, kind, settings, {name: file}, __version__))
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
    manifest = _read_manifest(target)
    if manifest.family != family:
        raise FileError(
            f"the folder must hold a {family}", found=f"a {manifest.family} in {target}"
        )
    arrays: Arrays = {}
    for name, file in manifest.files.items():
        arrays.update(_read_arrays(target, name, file))
    return manifest.kind, manifest.settings, arrays


def _read_manifest(target: Path) -> Manifest:
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
        intact = type(body["format"]) is int and _body_hash(body) == sha
    except (ValueError, KeyError, TypeError, RecursionError):
        intact, body = False, {}
    # the format comes first: of a newer one nobody knows how it is hashed
    if isinstance(body, dict) and type(body.get("format")) is int and body["format"] != FORMAT:
        raise FileError(
            f"this version reads manifests of format {FORMAT}",
            found=f"format {body['format']} in {path}, written by depsue {body.get('depsue')}",
            cure="use the version of depsue that wrote it, or save it again",
        )
    if not intact:
        raise FileError(
            "a manifest must match its own SHA-256",
            found=f"{path} is damaged",
            cure="restore it from a copy, or save it again",
        )
    return codec.typed(body, Manifest, what=f"the manifest in {path}")


def _file_names(target: Path) -> set[str]:
    """The files of the thing that is in the folder now; none if there is nothing sound."""
    try:
        return {Path(name).name for name in _read_manifest(target).files}
    except FileError:
        return set()


def _read_arrays(target: Path, name: str, file: SavedFile) -> Arrays:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = target / Path(name).name
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size == file.bytes else b""
    except OSError as problem:
        raise FileError(
            "every file of the manifest must be there", found=f"{path}: {problem.strerror}"
        ) from problem
    if size != file.bytes or hashlib.sha256(content).hexdigest() != file.sha256:
        raise FileError(
            "every file must match the SHA-256 of its manifest",
            found=f"{path} ({size:,} bytes, {file.bytes:,} expected) is damaged or truncated",
            cure="restore it from a copy, or save it again",
        )
    try:
        loaded: Arrays = load(content)
    except SafetensorError as problem:
        raise FileError("the file must be safetensors", found=f"{path}: {problem}") from problem
    return loaded


def _body_hash(body: Any) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
