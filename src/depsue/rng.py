"""Seeds: callers hand randomness in as one seed; a seed and a path of names give one stream.

Streams with different names are independent. So the parts of a run may draw in any order, or in
parallel, and give the same results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from depsue.errors import is_whole, require, short

if TYPE_CHECKING:
    import torch


def derive(seed: int, *names: object) -> int:
    """A 63-bit seed for the stream `names` below `seed`.

    Args:
        seed: a whole number.
        names: strings and numbers; ("a", "b") and ("a/b",) are two streams.
    """
    rule = "a seed must be a whole number"
    require(is_whole(seed), rule, found=short(seed), cure="use for example 0")
    path = [str(name).replace("%", "%25").replace("/", "%2F") for name in names]
    digest = hashlib.sha256("/".join([str(int(seed)), *path]).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # torch takes signed 64 bits


def secret(seed: int, *names: object) -> str:
    """64 hexadecimal digits for the stream `names` below `seed`: a secret that can be had again.

    For simulations only: a ledger draws its secrets.
    """
    return hashlib.sha256(f"secret {derive(seed, *names)}".encode()).hexdigest()


def generator(seed: int, *names: object) -> np.random.Generator:
    """A numpy generator for the stream `names` below `seed`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))


def torch_generator(seed: int, *names: object) -> torch.Generator:
    """A torch generator for the stream `names` below `seed`."""
    import torch

    return torch.Generator().manual_seed(derive(seed, *names))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one torch thread in this block.

    One thread adds sums in one order, so every run gives the same bits. Small networks are also
    faster with one thread where other programs compete for the cores.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
