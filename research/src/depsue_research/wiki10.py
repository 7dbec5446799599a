"""The paper's experiment on Wiki10-31K: classification turned into bandit feedback.

Documents are contexts, labels are actions; a label that holds earns .8 on average, any other .2.
A two-tower classifier gives the action features and the epsilon-greedy logging policies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from depsue import rng
from depsue.data.catalogue import ActionCatalogue
from depsue.data.checks import FloatArray, IntArray, Mask
from depsue.errors import DataError, require
from depsue.policies import EpsilonGreedy
from depsue.progress import Watch, silent
from depsue.world import World
from depsue_research.wiki10_files import Wiki10

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
    kept = action >= 0
    keys = np.unique(document[kept] * n_actions + action[kept])
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
    catalogue: ActionCatalogue
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
    catalogue = ActionCatalogue(documents.labels, novel, features)
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
