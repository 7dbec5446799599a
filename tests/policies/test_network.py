import numpy as np
import pytest
import torch

from depsue.errors import PolicyError
from depsue.policies.network import NetworkPolicy

CONTEXTS = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


def test_ascend_is_the_gradient_of_autograd() -> None:
    policy = NetworkPolicy.initial(3, 5, seed=2, hidden=(8, 7))
    direction = torch.from_numpy(np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32))
    leaves = [t.clone().requires_grad_(True) for layer in policy.layers for t in layer]
    h = torch.from_numpy(CONTEXTS)
    for place in range(0, len(leaves), 2):
        h = h @ leaves[place] + leaves[place + 1]
        if place + 2 < len(leaves):
            h = h.relu()
    gradients = torch.autograd.grad((h * direction).sum(), leaves)
    policy.ascend(policy.hidden(policy.inputs(CONTEXTS)), direction, 0.1)
    moved = [t for layer in policy.layers for t in layer]
    for leaf, gradient, after in zip(leaves, gradients, moved, strict=True):
        torch.testing.assert_close(after, leaf.detach() + 0.1 * gradient, rtol=1e-5, atol=1e-6)


def test_inputs_are_standardised() -> None:
    wide = CONTEXTS * np.array([1, 100, 1e-9], dtype=np.float32) + 50
    policy = NetworkPolicy.initial(3, 5, seed=2, standardise=wide)
    inputs = policy.inputs(wide).numpy()
    np.testing.assert_allclose(inputs[:, :2].mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(inputs[:, :2].std(axis=0), 1, atol=1e-3)
    assert np.isfinite(inputs).all()


def test_a_copy_has_weights_of_its_own() -> None:
    policy = NetworkPolicy.initial(3, 5, seed=2)
    before = policy.probabilities(CONTEXTS)
    other = policy.copy()
    other.layers[-1][1].add_(torch.arange(5.0))
    np.testing.assert_array_equal(policy.probabilities(CONTEXTS), before)
    assert not np.allclose(other.probabilities(CONTEXTS), before)


def test_the_papers_network_is_near_uniform_at_first() -> None:
    pi = NetworkPolicy.initial(3, 50, seed=2).probabilities(CONTEXTS)
    assert 1 / 3 / 50 < pi.min() and pi.max() < 3 / 50


def test_contexts_must_have_the_right_width() -> None:
    with pytest.raises(PolicyError, match="must have 3 features"):
        NetworkPolicy.initial(3, 5, seed=2).probabilities(CONTEXTS[:, :2])


def test_layers_must_fit() -> None:
    a = (torch.zeros(3, 4), torch.zeros(4))
    with pytest.raises(PolicyError, match="must fit each other"):
        NetworkPolicy([a, a])
    with pytest.raises(PolicyError, match="shift and scale must have 3 entries"):
        NetworkPolicy([a], shift=np.zeros(2))
    with pytest.raises(PolicyError, match="weights of a network must be finite"):
        NetworkPolicy([(torch.full((3, 4), torch.nan), torch.zeros(4))])


def test_contexts_must_be_finite() -> None:
    with pytest.raises(PolicyError, match="contexts must be finite"):
        NetworkPolicy.initial(3, 5, seed=2).probabilities(np.full((1, 3), np.nan))
