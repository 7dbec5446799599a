"""Randomness is handed in: one seed and a path of names give one independent stream.

Streams that are named differently are independent, so the order in which parts of a run
draw (or run in parallel) does not matter.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *names: object) -> int:
    """A 63-bit seed for the stream `names` below `seed`."""
    text = "/".join([str(int(seed)), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *names: object) -> np.random.Generator:
    """A numpy generator for the stream `names` below `seed`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


def torch_generator(seed: int, *names: object) -> torch.Generator:
    """A torch generator for the stream `names` below `seed`."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *names))
