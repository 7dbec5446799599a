"""What a policy is trained for: F, and its derivative by log pi."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from depsue.errors import require


class Objective(Protocol):
    """F(pi) as a mean over contexts of a function of pi(.|x) and q-hat(x, .)."""

    def __call__(
        self, log_pi: torch.Tensor, pi: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(m,) values of F at m contexts and its derivative (m, A) by log pi.

        Args:
            log_pi: (m, A) log-probabilities.
            pi: (m, A) probabilities.
            q: (m, A) predicted rewards.
        """
        ...


@dataclass(frozen=True)
class ValueWithEntropy:
    """Eq. 2 with the direct estimate of Eq. 1.

    F = (1 - alpha) sum_a pi(a|x) q(x, a) - alpha sum_a pi(a|x) log pi(a|x).

    Args:
        alpha: the weight of the entropy, which pulls pi towards uniform; the paper's is 0.1.
    """

    alpha: float = 0.1

    def __post_init__(self) -> None:
        require(0 <= self.alpha <= 1, "alpha must lie in [0, 1]", found=self.alpha)

    def __call__(
        self, log_pi: torch.Tensor, pi: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        gain = pi * torch.sub(q * (1 - self.alpha), log_pi, alpha=self.alpha)
        return gain.sum(dim=1), torch.sub(gain, pi, alpha=self.alpha)


@dataclass(frozen=True)
class OwnObjective:
    """Any objective: a torch function of log pi (m, A) and q (m, A) that returns (m,) values.

    Its derivative is found by autograd, so it must be differentiable in log pi.
    """

    function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def __call__(
        self, log_pi: torch.Tensor, pi: torch.Tensor, q: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.enable_grad():
            leaf = log_pi.detach().requires_grad_(True)
            values = self.function(leaf, q)
            cure = "sum over actions: lambda log_pi, q: (log_pi.exp() * q).sum(dim=1)"
            require(
                isinstance(values, torch.Tensor) and values.requires_grad,
                "an objective must return a torch tensor that depends on log_pi",
                found=type(values).__name__,
                cure=cure,
            )
            require(
                values.shape == (len(log_pi),) and bool(values.isfinite().all()),
                f"an objective must return one finite value per context, {len(log_pi)} here",
                found=f"shape {tuple(values.shape)}",
                cure=cure,
            )
            (gradient,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), gradient
