"""B small MLPs q-hat_j(x, e_a), held and computed as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from depsue import rng
from depsue.data.checks import FloatArray

PAIRS_AT_ONCE = 1 << 14
"""Pairs whose first hidden layer is held at once when every action is predicted."""


class BatchedMlp:
    """B MLPs of the same shape on (context, action features), ReLU between, one logit out.

    The first layer is kept as a part for the context and a part for the action, so that all
    pairs of m contexts and A actions need m + A first-layer products, not m A.

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

    def all_pairs(self, contexts: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """(B, m, A) logits of every pair of m contexts (m, d) and A actions (A, d_a)."""
        d, first = self.d, self.weights[0]
        x = (contexts - self.shift[:d]) * self.scale[:d]
        e = (features - self.shift[d:]) * self.scale[d:]
        out = torch.empty(self.members, len(x), len(e))
        step = max(1, PAIRS_AT_ONCE // len(e))
        for j in range(self.members):
            from_context = x @ first[j, :d]
            from_action = torch.addmm(self.biases[0][j], e, first[j, d:])
            for start in range(0, len(x), step):
                h = (from_context[start : start + step, None] + from_action).relu_()
                h = h.reshape(-1, h.shape[-1])
                for place in range(1, len(self.weights)):
                    h = torch.addmm(self.biases[place][j], h, self.weights[place][j])
                    if place + 1 < len(self.weights):
                        h = h.relu_()
                out[j, start : start + step] = h.reshape(-1, len(e))
        return out
