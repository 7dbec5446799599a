"""Seeds: callers hand randomness in as one seed; a seed and a path of names give one stream.

Streams with different names are independent. So the parts of a run may draw in any order, or in
parallel, and give the same results.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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


def cores() -> int:
    """How many threads may compute at once: what OMP_NUM_THREADS says, else all cores there are."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_all_cores(work: Callable[[slice], None], n: int, at_once: int) -> None:
    """Call `work` for slices of n things, one thread each, on as many threads as there are cores.

    A slice is the same, and is worked out by one thread, however many threads there are: so the
    bits of what comes out do not depend on them.

    Args:
        work: takes one slice; it must not touch what another slice does.
        n: how many things.
        at_once: things in a slice.
    """
    pieces = [slice(k, min(k + at_once, n)) for k in range(0, n, at_once)]
    threads = min(cores(), len(pieces))
    if len(pieces) <= 1:
        for piece in pieces:
            work(piece)
        return
    import torch

    with (
        one_thread(),
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        for _ in pool.map(work, pieces):
            pass
