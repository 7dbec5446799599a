"""Wiki10-31K: documents with many labels each, and an embedding of every document.

Two layouts are read. The one of the XMC data sets: Y.trn.npz and Y.tst.npz (label matrices as
scipy saves them) with embeddings.npy, a sentence embedding of each document, training documents
first. And one in which both splits are one matrix, Y.csr.npz, and documents are known by their
titles only: title_minilm_f16.npy embeds those.

A. Zubiaga. 2012. Enhancing Navigation on Wikipedia with Social Tags. K. Bhatia et al. 2016. The
extreme classification repository.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from depsue.data.checks import FloatArray, IntArray
from depsue.errors import FileError, require
from depsue_research.data_files import require_count, require_files, require_sha256

DOCUMENTS, LABELS = 20_762, 30_938
SHA256 = "c26c955398beb1c7db81376f0282fa2c9357c78c9f5938a5a19dd8f8f35a076c"
"""Of starts and labels of Y.csr.npz as 64-bit numbers."""
SPLITS = ("Y.trn.npz", "Y.tst.npz", "embeddings.npy")
JOINED = ("Y.csr.npz", "title_minilm_f16.npy")
UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error)
"""What numpy raises for a damaged file."""
CURE = (
    "download wiki10-31k (Y.trn.npz and Y.tst.npz with the texts) from the extreme classification "
    "repository or PECOS, embed the texts with a sentence encoder into embeddings.npy (one row a "
    "document, training documents first), and name the folder with --data, or the folder above "
    "it with the variable DEPSUE_DATA"
)


@dataclass(frozen=True, eq=False)
class Wiki10:
    """Documents, their labels and embeddings.

    Args:
        starts: (n + 1,) where the labels of each document begin in `labels`.
        labels: label numbers, document after document, ascending within each.
        n_labels: how many labels there are.
        embeddings: (n, e) one row a document.
        of_titles: the embeddings are of titles, which stand in for the text.
    """

    starts: IntArray
    labels: IntArray
    n_labels: int
    embeddings: FloatArray
    of_titles: bool


def read_wiki10(folder: str | Path, *, official: bool = True) -> Wiki10:
    """Read either layout.

    Args:
        folder: where the files are.
        official: hold them against the published counts (and, joined, against a SHA-256 sum).
    """
    target = Path(folder)
    of_titles = (target / JOINED[0]).is_file()
    names = JOINED if of_titles else SPLITS
    require_files(target, names, "Wiki10-31K", CURE)
    parts = [_matrix(target / name) for name in names[:-1]]
    widths = {width for _, _, width in parts}
    require(
        len(widths) == 1,
        "all label matrices must have the same labels",
        found=f"{sorted(widths)} labels",
        cure=CURE,
        error=FileError,
    )
    sizes = np.concatenate([np.diff(starts) for starts, _, _ in parts])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    labels = np.concatenate([labels for _, labels, _ in parts])
    embeddings = _array(target / names[-1])
    require(
        embeddings.ndim == 2
        and len(embeddings) == len(sizes)
        and embeddings.dtype.kind == "f"
        and bool(np.isfinite(embeddings).all()),
        f"{names[-1]} must hold one row of finite numbers for each of {len(sizes):,} documents",
        found=f"type {embeddings.dtype}, shape {embeddings.shape}",
        cure=CURE,
        error=FileError,
    )
    if official:
        require_count("the documents", len(sizes), DOCUMENTS, CURE)
        require_count("the labels", widths.pop(), LABELS, CURE)
        if of_titles:
            content = starts.astype(np.int64).tobytes() + labels.astype(np.int64).tobytes()
            require_sha256("the labels of Y.csr.npz", content, SHA256, CURE)
    return Wiki10(starts, labels, parts[0][2], embeddings.astype(np.float32), of_titles)


def _matrix(path: Path) -> tuple[IntArray, IntArray, int]:
    """(starts, labels, number of labels) of a compressed sparse row matrix, zeros left out."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            starts, labels = file["indptr"].astype(np.int64), file["indices"].astype(np.int64)
            values, layout = file["data"], bytes(file["format"].item())
            n, width = (int(v) for v in file["shape"])
    except (*UNREADABLE, KeyError, AttributeError, TypeError) as problem:
        raise FileError(
            "a label matrix must be a sparse matrix as scipy.sparse.save_npz writes it",
            found=f"{path.name}: {type(problem).__name__} {problem}",
            cure=CURE,
        ) from problem
    require(
        layout == b"csr"
        and len(starts) == n + 1
        and starts[0] == 0
        and len(labels) == len(values) == starts[-1]
        and bool((np.diff(starts) >= 0).all())
        and (len(labels) == 0 or (labels.min() >= 0 and labels.max() < width)),
        "a label matrix must be in compressed sparse row form, its parts fitting together",
        found=f"{path.name}: format {layout!r}, shape {(n, width)}",
        cure=CURE,
        error=FileError,
    )
    document = np.repeat(np.arange(n), np.diff(starts))[values > 0]
    keys = np.unique(document * width + labels[values > 0])
    starts = np.searchsorted(keys, np.arange(n + 1) * width)
    return starts, keys % width, width


def _array(path: Path) -> FloatArray:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except UNREADABLE as problem:
        raise FileError(
            "embeddings must be an array as numpy.save writes it",
            found=f"{path.name}: {problem}",
            cure=CURE,
        ) from problem
