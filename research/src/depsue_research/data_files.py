"""Where data sets are, and checks that every loader makes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from depsue.errors import FileError, require


def data_folder(name: str, folder: str | Path | None = None) -> Path:
    """Where a data set is: the folder given, or `name` below DEPSUE_DATA or ../shared/data."""
    if folder is not None:
        return Path(folder)
    return Path(os.environ.get("DEPSUE_DATA", "../shared/data")) / name


def require_files(folder: Path, names: tuple[str, ...], what: str, cure: str) -> None:
    """All files of a data set are there."""
    missing = [name for name in names if not (folder / name).is_file()]
    require(
        not missing,
        f"{what} needs {', '.join(names)} in one folder",
        found=f"no {', '.join(missing)} in {folder}",
        cure=cure,
        error=FileError,
    )


def require_count(what: str, count: int, expected: int, cure: str) -> None:
    """A published count holds."""
    require(
        count == expected,
        f"{what} must number {expected:,}",
        found=f"{count:,}",
        cure=cure,
        error=FileError,
    )


def require_sha256(what: str, content: bytes, expected: str, cure: str) -> None:
    """A file is the one that was published, to the byte."""
    digest = hashlib.sha256(content).hexdigest()
    require(
        digest == expected,
        f"{what} must have the SHA-256 {expected[:16]}...",
        found=f"{digest[:16]}...",
        cure=cure,
        error=FileError,
    )
