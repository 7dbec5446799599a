"""Experiments beside the product: the paper's two, hostile worlds, error rates, and its tests."""
