"""Experiments: simulated worlds and the demo."""
