"""B small MLPs q-hat_j(x, e_a), held and computed as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from depsue import rng
from depsue.data.checks import FloatArray

ACTIONS_AT_ONCE = 2000
"""Actions whose first hidden layer is held at once: small enough to stay near the processor."""


class BatchedMlp:
    """B MLPs of the same shape on (context, action features), ReLU between, one logit out.

    The first layer is a part for the context and a part for the action, so that all pairs of m
    contexts and A actions need m + A first-layer products, not m A (`AllPairs`).

    Args:
        weights: each (B, in, out); the first has in = d + the number of action features.
        biases: each (B, 1, out).
        d: features of a context.
        shift: (in,) subtracted from the inputs before the first layer.
        scale: (in,) multiplied after that.
    """

    def __init__(
        self,
        weights: list[torch.Tensor],
        biases: list[torch.Tensor],
        d: int,
        shift: torch.Tensor,
        scale: torch.Tensor,
    ) -> None:
        self.weights, self.biases, self.d = weights, biases, d
        self.shift, self.scale = shift, scale

    @classmethod
    def initial(
        cls,
        contexts: FloatArray,
        features: FloatArray,
        *,
        members: int,
        hidden: Sequence[int],
        seed: int,
    ) -> BatchedMlp:
        """Random weights, uniform in +-1/sqrt(fan in); inputs standardised to the given data.

        Args:
            contexts: (u, d).
            features: (A, d_a).
            members: B.
            hidden: widths of the hidden layers.
            seed: of the weights.
        """
        generator = rng.torch_generator(seed, "reward mlp")
        d, d_a = contexts.shape[1], features.shape[1]
        weights, biases = [], []
        for fan_in, fan_out in pairwise((d + d_a, *hidden, 1)):
            values = torch.rand(members, fan_in + 1, fan_out, generator=generator) * 2 - 1
            values /= fan_in**0.5
            weights.append(values[:, :-1].contiguous())
            biases.append(values[:, -1:].contiguous())
        mean = np.concatenate([contexts.mean(axis=0), features.mean(axis=0)])
        deviation = np.concatenate([contexts.std(axis=0), features.std(axis=0)])
        scale = 1 / np.where(deviation > 1e-8, deviation, 1)
        as_tensor = [torch.as_tensor(v, dtype=torch.float32) for v in (mean, scale)]
        return cls(weights, biases, d, *as_tensor)

    @property
    def members(self) -> int:
        """B."""
        return int(self.weights[0].shape[0])

    def parameters(self) -> list[torch.Tensor]:
        """All weights and biases."""
        return [*self.weights, *self.biases]

    def logits(self, inputs: torch.Tensor) -> torch.Tensor:
        """(B, m) logits of m standardised inputs: (B, m, in), or (m, in) for all members."""
        h = inputs if inputs.ndim == 3 else inputs.expand(self.members, -1, -1)
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            h = torch.baddbmm(bias, h, weight)
            if place + 1 < len(self.weights):
                h = h.relu()
        return h[..., 0]

    def standardised(self, contexts: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """(..., in) inputs of aligned contexts (..., d) and action features (..., d_a)."""
        return (torch.cat([contexts, features], dim=-1) - self.shift) * self.scale


class AllPairs:
    """Logits of every pair of a context and one of A actions; the actions' part is kept.

    With u the context's part of the first layer and v the action's, relu(u + v) is max(v, -u) + u:
    one pass over the pairs, and u's share is added once a context. Actions lie along the last axis
    throughout, which the products with few hidden units like best.

    Args:
        mlp: the members; their weights must not change any more.
        features: (A, d_a) features of the actions.
    """

    def __init__(self, mlp: BatchedMlp, features: torch.Tensor) -> None:
        self._mlp, self._n = mlp, len(features)
        d, first = mlp.d, mlp.weights[0]
        e = (features - mlp.shift[d:]) * mlp.scale[d:]
        self._pieces = [
            slice(k, min(k + ACTIONS_AT_ONCE, self._n)) for k in range(0, self._n, ACTIONS_AT_ONCE)
        ]
        self._weights = [[w[j].T.contiguous() for w in mlp.weights[1:]] for j in range(mlp.members)]
        self._biases = [[b[j].T for b in mlp.biases[1:]] for j in range(mlp.members)]
        self._of_action = []
        for j in range(mlp.members):
            of_action = torch.addmm(mlp.biases[0][j], e, first[j, d:]).T
            self._of_action.append([of_action[:, piece].contiguous() for piece in self._pieces])

    def __call__(self, contexts: torch.Tensor) -> torch.Tensor:
        """(B, m, A) logits of m contexts (m, d) with every action."""
        mlp, d = self._mlp, self._mlp.d
        x = (contexts - mlp.shift[:d]) * mlp.scale[:d]
        out = torch.empty(mlp.members, len(x), self._n)
        for j, (weights, biases) in enumerate(zip(self._weights, self._biases, strict=True)):
            of_context = x @ mlp.weights[0][j, :d]
            second = torch.addmm(biases[0], weights[0], of_context.T)  # (out, m) biases of layer 2
            least = (-of_context)[:, :, None].unbind()
            starts = second.T[:, :, None].unbind()
            for piece, v in zip(self._pieces, self._of_action[j], strict=True):
                h = torch.empty_like(v)
                g = torch.empty(len(weights[0]), len(v[0]))
                for row, u, start in zip(out[j, :, None, piece], least, starts, strict=True):
                    torch.maximum(v, u, out=h)
                    if len(weights) == 1:
                        torch.addmm(start, weights[0], h, out=row)
                        continue
                    torch.addmm(start, weights[0], h, out=g)
                    last = g.relu_()
                    for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
                        last = torch.addmm(bias, weight, last).relu_()
                    torch.addmm(biases[-1], weights[-1], last, out=row)
        return out
