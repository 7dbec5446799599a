"""The learned policy: a softmax over an MLP of the context.

The gradient is written out by hand: a training step differentiates the objective with respect to
the logits only, and the rest is two matrix products a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from depsue import rng
from depsue.data.checks import FloatArray
from depsue.errors import PolicyError, require
from depsue.policies.base import BasePolicy
from depsue.savable import State

Layer = tuple[torch.Tensor, torch.Tensor]


class NetworkPolicy(BasePolicy):
    """pi(a|x) = softmax(f(x))_a with an MLP f: d -> hidden ... -> A, ReLU between.

    The paper's is a 2-layer MLP with 100 hidden units.

    Args:
        layers: weights (in, out) and biases (out,) of each layer, float32.
        shift: (d,) subtracted from a context before the first layer.
        scale: (d,) multiplied after that.
    """

    kind = "network"

    def __init__(self, layers: Sequence[Layer], shift: Any = None, scale: Any = None) -> None:
        self.layers = [(w.float().contiguous(), b.float().contiguous()) for w, b in layers]
        sizes = [w.shape for w, _ in self.layers]
        require(
            len(sizes) > 0
            and all(w.ndim == 2 for w, _ in self.layers)
            and all(a[1] == b[0] for a, b in pairwise(sizes))
            and all(b.shape == (w.shape[1],) for w, b in self.layers),
            "the layers of a network must fit each other",
            found=[tuple(s) for s in sizes],
            error=PolicyError,
        )
        require(
            all(bool(t.isfinite().all()) for layer in self.layers for t in layer),
            "the weights of a network must be finite",
            found="NaN or infinite weights",
            cure="training diverged: lower the rate",
            error=PolicyError,
        )
        d = sizes[0][0]
        self.shift = torch.as_tensor(np.zeros(d) if shift is None else shift, dtype=torch.float32)
        self.scale = torch.as_tensor(np.ones(d) if scale is None else scale, dtype=torch.float32)
        require(
            self.shift.shape == self.scale.shape == (d,),
            f"shift and scale must have {d} entries, one per feature",
            found=f"{tuple(self.shift.shape)} and {tuple(self.scale.shape)}",
            error=PolicyError,
        )

    @classmethod
    def initial(
        cls,
        d: int,
        n_actions: int,
        *,
        seed: int,
        hidden: Sequence[int] = (100,),
        standardise: FloatArray | None = None,
    ) -> NetworkPolicy:
        """A network with random weights, uniform in +-1/sqrt(fan in).

        Args:
            d: features of a context.
            n_actions: A.
            seed: of the weights.
            hidden: widths of the hidden layers.
            standardise: (u, d) contexts to whose mean and deviation inputs are standardised.
        """
        generator = rng.torch_generator(seed, "network")
        layers = []
        for fan_in, fan_out in pairwise((d, *hidden, n_actions)):
            values = torch.rand(fan_in + 1, fan_out, generator=generator) * 2 - 1
            values /= fan_in**0.5
            layers.append((values[:-1], values[-1]))
        if standardise is None:
            return cls(layers)
        deviation = standardise.std(axis=0)
        scale = 1 / np.where(deviation > 1e-8, deviation, 1)
        return cls(layers, standardise.mean(axis=0), scale)

    @property
    def n_actions(self) -> int:
        return int(self.layers[-1][0].shape[1])

    @property
    def d(self) -> int:
        """Features of a context."""
        return int(self.layers[0][0].shape[0])

    def inputs(self, contexts: Any) -> torch.Tensor:
        """(m, d) contexts as the first layer takes them."""
        x = torch.from_numpy(np.array(contexts, dtype=np.float32))  # a copy: logs are read-only
        require(
            x.ndim == 2 and x.shape[1] == self.d,
            f"contexts must have {self.d} features",
            found=f"shape {tuple(x.shape)}",
            cure="pass contexts with the features that the policy was trained on",
            error=PolicyError,
        )
        require(
            bool(x.isfinite().all()),
            "contexts must be finite",
            found="NaN or infinite features",
            cure="fill the missing features as in training",
            error=PolicyError,
        )
        return (x - self.shift) * self.scale

    def hidden(self, inputs: torch.Tensor) -> list[torch.Tensor]:
        """What each layer takes in: the inputs, then the hidden layers' outputs."""
        outputs = [inputs]
        for weight, bias in self.layers[:-1]:
            outputs.append(torch.addmm(bias, outputs[-1], weight).relu_())
        return outputs

    def logits(self, last_hidden: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """(m, A) logits from the last hidden layer."""
        weight, bias = self.layers[-1]
        return torch.addmm(bias, last_hidden, weight, out=out)

    def ascend(self, outputs: list[torch.Tensor], d_logits: torch.Tensor, rate: float) -> None:
        """Move the weights by rate times the gradient, given (m, A) dF/dlogits.

        Args:
            outputs: what `hidden` returned for the m contexts.
            d_logits: (m, A) derivative of the objective by the logits.
            rate: step size.
        """
        upstream = d_logits
        for place in reversed(range(len(self.layers))):
            weight, bias = self.layers[place]
            below = None
            if place:  # before the weights move
                below = (upstream @ weight.T) * (outputs[place] > 0)
            weight.addmm_(outputs[place].T, upstream, alpha=rate)
            bias.add_(upstream.sum(dim=0), alpha=rate)
            if below is not None:
                upstream = below

    def copy(self) -> NetworkPolicy:
        """A copy with weights of its own."""
        layers = [(w.clone(), b.clone()) for w, b in self.layers]
        return NetworkPolicy(layers, self.shift, self.scale)

    def probabilities(self, contexts: FloatArray) -> FloatArray:
        with torch.no_grad():
            logits = self.logits(self.hidden(self.inputs(contexts))[-1])
            return np.asarray(torch.softmax(logits, dim=1).numpy())

    def state(self) -> State:
        arrays = {"shift": self.shift.numpy(), "scale": self.scale.numpy()}
        for place, (weight, bias) in enumerate(self.layers):
            arrays[f"weight{place}"], arrays[f"bias{place}"] = weight.numpy(), bias.numpy()
        return State({"layers": len(self.layers)}, arrays)

    @classmethod
    def from_state(cls, state: State) -> NetworkPolicy:
        tensors = {name: torch.from_numpy(array.copy()) for name, array in state.arrays.items()}
        layers = [
            (tensors[f"weight{place}"], tensors[f"bias{place}"])
            for place in range(state.settings["layers"])
        ]
        return cls(layers, state.arrays["shift"], state.arrays["scale"])
