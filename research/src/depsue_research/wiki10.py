"""Wiki10-31K: its files, and the paper's experiment that turns labels into bandit feedback.

Two layouts are read. The one of the XMC data sets: Y.trn.npz and Y.tst.npz (label matrices as
scipy saves them) with embeddings.npy, a sentence embedding of each document, training documents
first. And one in which both splits are one matrix, Y.csr.npz, and documents are known by their
titles only: title_minilm_f16.npy embeds those. (A. Zubiaga. 2012. Enhancing Navigation on Wikipedia
with Social Tags. K. Bhatia et al. 2016. The extreme classification repository.)

Documents are contexts, labels are actions; a label that holds earns .8 on average, any other .2.
A two-tower classifier gives the action features and the epsilon-greedy logging policies.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from depsue import rng
from depsue.data.catalogue import Catalogue
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.errors import DataError, FileError, require
from depsue.policies import EpsilonGreedy
from depsue.progress import Watch, silent
from depsue.world import World
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


COMMONEST = 1000
"""Labels that hold for more documents than this are left out."""
DIMENSIONS = 20
"""Of contexts after PCA, and of both towers."""
SCALE = 10.0
"""Deviation of the first principal component. The paper does not say how large its contexts are;
plain SGD learns in proportion to their square, and ours come from vectors of length 1."""
HIT, MISS = 0.8, 0.2
EPOCHS, BATCH, RATE = 15, 256, 2e-3
"""How the classifier is trained."""


def constants() -> dict[str, float]:
    """What results depend on beside a recipe."""
    return {
        "commonest": COMMONEST,
        "dimensions": DIMENSIONS,
        "scale": SCALE,
        "hit": HIT,
        "miss": MISS,
        "epochs": EPOCHS,
        "batch": BATCH,
        "rate": RATE,
    }


@dataclass(frozen=True, eq=False)
class Documents:
    """What is kept of Wiki10: the documents with a label among the actions.

    Args:
        contexts: (n, 20) embeddings after PCA, the first component with deviation SCALE.
        starts: (n + 1,) where the actions of each document begin in `actions`.
        actions: numbers of actions, the commonest first.
        labels: (A,) the label that each action is.
        of_titles: the embeddings are of titles, which stand in for the texts.
    """

    contexts: FloatArray
    starts: IntArray
    actions: IntArray
    labels: IntArray
    of_titles: bool

    def some(self, documents: IntArray) -> tuple[IntArray, IntArray]:
        """(starts, actions) of these documents alone."""
        pieces = [self.actions[self.starts[i] : self.starts[i + 1]] for i in documents]
        sizes = [len(piece) for piece in pieces]
        return np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(pieces)


def documents_of(data: Wiki10, n_actions: int) -> Documents:
    """Leave out the commonest labels, keep the n_actions most frequent others, reduce contexts."""
    frequency = np.bincount(data.labels, minlength=data.n_labels)
    frequency[frequency > COMMONEST] = 0
    order = np.argsort(-frequency, kind="stable")[:n_actions]
    if np.count_nonzero(frequency[order]) < n_actions:
        raise DataError(
            f"there must be {n_actions:,} labels that hold for 1 to {COMMONEST:,} documents",
            column="labels",
            found=f"{np.count_nonzero(frequency):,}",
            cure="lower supported and novel in the recipe",
        )
    action_of = np.full(data.n_labels, -1)
    action_of[order] = np.arange(n_actions)
    document = np.repeat(np.arange(len(data.starts) - 1), np.diff(data.starts))
    action = action_of[data.labels]
    known = action >= 0
    keys = np.unique(document[known] * n_actions + action[known])
    documents, at = np.unique(keys // n_actions, return_index=True)
    return Documents(
        contexts=SCALE * principal_components(data.embeddings[documents], DIMENSIONS),
        starts=np.append(at, len(keys)),
        actions=keys % n_actions,
        labels=order,
        of_titles=data.of_titles,
    )


def principal_components(rows: FloatArray, k: int) -> FloatArray:
    """(n, k) scores on the first k principal components, in units of the first one's deviation."""
    require(rows.shape[1] >= k, f"embeddings need {k} dimensions", found=str(rows.shape[1]))
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(rows))
    axes = vectors[:, ::-1][:, :k]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(k)])  # a sign that is not chance
    return np.asarray(centred @ axes / np.sqrt(values[-1]), dtype=np.float32)


class TwoTowers(nn.Module):
    """logit(x, a) = tower(x) . e_a, both of 20 dimensions."""

    def __init__(self, n_actions: int) -> None:
        super().__init__()
        self.tower = nn.Sequential(
            nn.Linear(DIMENSIONS, 100), nn.ReLU(), nn.Linear(100, DIMENSIONS)
        )
        self.actions = nn.Parameter(torch.randn(n_actions, DIMENSIONS) * 0.1)

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        return self.tower(contexts) @ self.actions.T  # type: ignore[no-any-return]

    def scores(self, contexts: FloatArray) -> FloatArray:
        """(m, A) logits, for `EpsilonGreedy`."""
        with torch.no_grad():
            return np.asarray(self(torch.from_numpy(np.array(contexts, np.float32))).numpy())


def train_towers(
    documents: Documents, train: IntArray, n_actions: int, *, seed: int, watch: Watch = silent
) -> TwoTowers:
    """Cross entropy between softmax(logit) and the uniform distribution over a document's labels.

    Args:
        documents: contexts and labels.
        train: which of them to train on.
        n_actions: A.
        seed: of weights and order.
        watch: shows progress.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(rng.derive(seed, "two towers"))
        towers = TwoTowers(n_actions)
    draw = rng.generator(seed, "two towers")
    optimiser = torch.optim.Adam(towers.parameters(), lr=RATE)
    contexts = torch.from_numpy(documents.contexts)
    for epoch in range(EPOCHS):
        losses = []
        for rows in _batches(draw.permutation(train)):
            starts, labels = documents.some(rows)
            place = torch.from_numpy(np.repeat(np.arange(len(rows)), np.diff(starts)))
            share = torch.from_numpy(np.repeat(1 / np.diff(starts), np.diff(starts)))
            log_pi = torch.log_softmax(towers(contexts[torch.from_numpy(rows)]), dim=1)
            loss = -(share.float() * log_pi[place, torch.from_numpy(labels)]).sum() / len(rows)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(float(loss.detach()))
        watch("two towers", epoch + 1, EPOCHS, f"cross entropy {np.mean(losses):.3f}")
    return towers


@dataclass(frozen=True, eq=False)
class Wiki10Setting:
    """The documents and actions of one seed; every epsilon shares them.

    Args:
        documents: all of them.
        catalogue: the actions, with the classifier's embeddings as features.
        towers: the classifier.
        train: documents of the training world.
        test: documents of the test world.
        seed: of what users do.
    """

    documents: Documents
    catalogue: Catalogue
    towers: TwoTowers
    train: IntArray
    test: IntArray
    seed: int

    def worlds(self, epsilon: float) -> tuple[World, World]:
        """The worlds of the training and of the test documents, with the same pi0."""
        pi0 = EpsilonGreedy(self.towers.scores, epsilon, ~self.catalogue.novel)
        train, test = (
            World(
                self.documents.contexts[rows],
                LabelRewards(*self.documents.some(rows), len(self.catalogue), hit=HIT, miss=MISS),
                self.catalogue,
                pi0,
                seed=self.seed,
            )
            for rows in (self.train, self.test)
        )
        return train, test


def wiki10_setting(
    documents: Documents, *, seed: int, supported: int = 8000, watch: Watch = silent
) -> Wiki10Setting:
    """Draw the supported actions, split the documents 80/20, train the classifier on the 80."""
    n_actions = len(documents.labels)
    draw = rng.generator(seed, "documents and labels")
    novel = np.ones(n_actions, dtype=bool)
    novel[draw.choice(n_actions, supported, replace=False)] = False
    n = len(documents.contexts)
    order = draw.permutation(n)
    cut = round(0.8 * n)
    train, test = np.sort(order[:cut]), np.sort(order[cut:])
    towers = train_towers(documents, train, n_actions, seed=seed, watch=watch)
    features = towers.actions.detach().numpy()
    catalogue = Catalogue(documents.labels, novel, features)
    return Wiki10Setting(documents, catalogue, towers, train, test, seed)


def _batches(rows: IntArray) -> list[IntArray]:
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]


class LabelRewards:
    """`MeanRewards` where a table would not fit: q = `hit` where the label holds, else `miss`.

    Args:
        starts: (u + 1,) where the labels of each context begin in `labels`.
        labels: the actions that hold, context after context, ascending within each.
        n_actions: A.
        hit: mean reward of a label that holds.
        miss: mean reward of the others.
    """

    def __init__(
        self, starts: IntArray, labels: IntArray, n_actions: int, *, hit: float, miss: float
    ) -> None:
        require(
            0 <= miss <= hit <= 1,
            "mean rewards must lie in [0, 1], a hit's not below a miss's",
            found=f"hit {hit:g}, miss {miss:g}",
        )
        self._starts, self._labels, self._n_actions = starts, labels, n_actions
        self._hit, self._miss = hit, miss
        context = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self._context = context
        self._keys = context * n_actions + labels  # ascending, so pairs are found by bisection

    @property
    def shape(self) -> tuple[int, int]:
        return (len(self._starts) - 1, self._n_actions)

    @property
    def q(self) -> FloatArray:
        out = np.full(self.shape, self._miss)
        out[self._context, self._labels] = self._hit
        return out

    def pairs(self, context: IntArray, action: IntArray) -> FloatArray:
        wanted = np.asarray(context, dtype=np.int64) * self._n_actions + action
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[place] == wanted, self._hit, self._miss)

    def expected(self, contexts: slice, pi: FloatArray) -> FloatArray:
        first, last = self._starts[contexts.start], self._starts[contexts.stop]
        row = self._context[first:last] - contexts.start
        on_hits = np.bincount(row, pi[row, self._labels[first:last]], minlength=len(pi))
        return np.asarray(self._miss + (self._hit - self._miss) * on_hits)

    def best(self) -> FloatArray:
        return np.where(np.diff(self._starts) > 0, self._hit, self._miss)

    def best_within(self, actions: Mask) -> FloatArray:
        hits = np.diff(self._starts)
        within = np.bincount(self._context, actions[self._labels], minlength=len(hits))
        return np.where(hits > 0, within / np.maximum(hits, 1), actions.mean())
