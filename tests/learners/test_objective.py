"""F and its derivative by log pi."""

import numpy as np
import pytest
import torch

from depsue.errors import ConfigError
from depsue.learners import OwnObjective, ValueWithEntropy

DRAW = np.random.default_rng(0)
LOG_PI = torch.log_softmax(torch.from_numpy(DRAW.normal(size=(4, 6))), dim=1)
Q = torch.from_numpy(DRAW.random((4, 6)))


def eq2(log_pi: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    pi = log_pi.exp()
    return 0.7 * (pi * q).sum(dim=1) - 0.3 * (pi * log_pi).sum(dim=1)


def test_eq_2_and_its_derivative() -> None:
    values, gradient = ValueWithEntropy(0.3)(LOG_PI, LOG_PI.exp(), Q)
    expected, by_autograd = OwnObjective(eq2)(LOG_PI, LOG_PI.exp(), Q)
    torch.testing.assert_close(values, eq2(LOG_PI, Q))
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(gradient, by_autograd)


def test_without_entropy_it_is_eq_1() -> None:
    values, gradient = ValueWithEntropy(0.0)(LOG_PI, LOG_PI.exp(), Q)
    torch.testing.assert_close(values, (LOG_PI.exp() * Q).sum(dim=1))
    torch.testing.assert_close(gradient, LOG_PI.exp() * Q)


def test_bad_objectives_are_refused() -> None:
    with pytest.raises(ConfigError, match="alpha must lie in"):
        ValueWithEntropy(1.5)
    with pytest.raises(ConfigError, match="one finite value per context"):
        OwnObjective(lambda log_pi, q: log_pi.sum())(LOG_PI, LOG_PI.exp(), Q)
    with pytest.raises(ConfigError, match="depends on log_pi"):
        OwnObjective(lambda log_pi, q: q.sum(dim=1))(LOG_PI, LOG_PI.exp(), Q)
