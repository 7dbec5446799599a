"""What can be saved: policies and reward models, by one recursion for writing, reading and hashing.

A savable class declares its `family` (policy or reward model), its `kind` (its name in files) and
what it is made of (`state`): plain settings, arrays, and parts that are savable themselves. It
registers itself under its kind, so a new class needs no list to be added to. On disk::

    settings   {"strength": 1.5, "model": {"kind": "linear", "settings": {...}}}
    arrays     {"model.of_context": ...}        a part's arrays carry its name

and several parts of one name are a list in the settings, "0.", "1.", ... in the arrays. The hash of
a thing is over exactly that, so it is the same wherever and whenever the thing was saved.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from depsue.artifacts import Arrays
from depsue.data.hashes import Content
from depsue.errors import CannotBeSaved, ConfigError, DepsueError, FileError, short

POLICY, REWARD_MODEL = "policy", "reward model"
WRAPPED = "inner"
"""A part of this name is all that its owner is about: its kind and settings stand unnamed."""


@dataclass(frozen=True, eq=False)
class State:
    """What a savable thing is made of.

    Args:
        settings: JSON values.
        arrays: by name.
        parts: savable things by name; a sequence where there are several.
        outside: callables that are saved by name alone: those used, where a thing is saved; those
            handed in, where it is loaded.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    outside: Mapping[str, Any] = field(default_factory=dict)


class Savable(ABC):
    """A policy or a reward model that can be written to a folder, read back and hashed."""

    family: ClassVar[str]
    """POLICY or REWARD_MODEL."""
    kind: ClassVar[str]
    """The name of the class in files, one of its own within the family."""
    part_families: ClassVar[Mapping[str, str]] = {}
    """The family of each part, by the part's name in `state`."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if isinstance(cls.__dict__.get("kind"), str):
            _register(cls)

    def state(self) -> State:
        """What `from_state` rebuilds it from."""
        raise CannotBeSaved(
            f"a {type(self).__name__} cannot be saved",
            found="it has no state",
            cure="give its class `state` and `from_state`: see the policies page",
        )

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The thing that `state` described; its parts are rebuilt already."""
        raise CannotBeSaved(f"a {cls.__name__} cannot be rebuilt", found="it has no from_state")

    def saved_as(self) -> Savable:
        """What stands for it in files: itself, or what a cache remembers."""
        return self


_KINDS: dict[tuple[str, str], type[Savable]] = {}


def _register(cls: type[Savable]) -> None:
    known = _KINDS.setdefault((cls.family, cls.kind), cls)
    same = (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)
    if not same:
        raise ConfigError(
            f"every kind of {cls.family} needs a name of its own in files",
            found=f"{cls.kind!r} is {known.__qualname__} of {known.__module__}",
            cure="give the class another `kind`",
        )
    _KINDS[cls.family, cls.kind] = cls  # the same class, defined anew: a notebook's cell run again


def described(thing: object, family: str) -> tuple[str, dict[str, Any], Arrays]:
    """(kind, settings, arrays) of a thing with all its parts, as they are written and hashed.

    Args:
        thing: what is to be saved; what cannot be is refused.
        family: that it must be of.
    """
    whole = _savable(thing, family)
    state = whole.state()
    settings, arrays = dict(state.settings), dict(state.arrays)
    for name, part_family in whole.part_families.items():
        part = state.parts[name]
        several = isinstance(part, Sequence)
        entries = []
        for place, member in enumerate(part if several else [part]):
            kind, inner, inner_arrays = described(member, part_family)
            entries.append({"kind": kind, "settings": inner})
            prefix = place if several else name
            arrays |= {f"{prefix}.{key}": array for key, array in inner_arrays.items()}
        if name == WRAPPED:
            settings |= entries[0]
        else:
            settings[name] = entries if several else entries[0]
    return whole.kind, settings, arrays


def rebuilt(
    family: str,
    kind: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]],
    outside: Mapping[str, Any] | None = None,
) -> Any:
    """The thing that `described` described; what does not fit together is refused.

    Args:
        family, kind, settings, arrays: as they were written.
        outside: callables that were saved by name.
    """
    cls = _KINDS.get((family, kind))
    if cls is None:
        known = sorted(kind for of, kind in _KINDS if of == family)
        raise FileError(
            f"a saved {family} must be one of {', '.join(known)}",
            found=kind,
            cure="use the version of depsue that wrote it, or import the module that defines it",
        )
    handed_in = {} if outside is None else outside
    try:
        own, parts = dict(settings), {}
        for name, part_family in cls.part_families.items():
            entry = own if name == WRAPPED else own.pop(name)
            several = isinstance(entry, list)
            loaded = []
            for place, member in enumerate(entry if several else [entry]):
                below = _below(arrays, f"{place if several else name}.")
                inner = member["kind"], member["settings"], below
                loaded.append(rebuilt(part_family, *inner, handed_in))
            parts[name] = tuple(loaded) if several else loaded[0]
        return cls.from_state(State(own, arrays, parts, handed_in))
    except (KeyError, TypeError, ValueError, RuntimeError, DepsueError) as problem:
        if isinstance(problem.__cause__, ImportError):  # an extra is missing: its error says which
            raise
        raise FileError(
            f"the settings and arrays of a saved {kind} {family} must fit together",
            found=f"{type(problem).__name__}: {problem}",
            cure="restore it from a copy, or save it again",
        ) from problem


def hash_of(thing: object) -> str | None:
    """SHA-256 of a policy's or a reward model's settings and arrays; None if it cannot be saved."""
    if not isinstance(thing, Savable):
        return None
    try:
        kind, settings, arrays = described(thing, thing.family)
    except CannotBeSaved:
        return None
    text = json.dumps({"kind": kind, "settings": settings}, sort_keys=True)
    content = Content(f"depsue {thing.family} 1 {hashlib.sha256(text.encode()).hexdigest()}")
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        content.add(name, array, array.dtype.newbyteorder("<").str)
    return content.hex()


def outside_of(thing: object) -> dict[str, Any]:
    """The callables that a thing, or a part of it, is saved with by name, as `load` takes them."""
    return {name: call for state in states_of(thing) for name, call in state.outside.items()}


def states_of(thing: object) -> Iterator[State]:
    """The states of a thing and of all its parts; none if it cannot be saved."""
    try:
        state = thing.saved_as().state() if isinstance(thing, Savable) else State()
    except CannotBeSaved:
        return
    yield state
    for part in state.parts.values():
        for member in part if isinstance(part, Sequence) else [part]:
            yield from states_of(member)


def _savable(thing: object, family: str) -> Savable:
    if isinstance(thing, Savable) and thing.family == family:
        whole = thing.saved_as()
        if isinstance(getattr(whole, "kind", None), str):
            return whole
    what = {POLICY: "policies", REWARD_MODEL: "reward models"}[family]
    raise CannotBeSaved(
        f"a {type(thing).__name__} cannot be saved: only {what} of depsue can",
        found=short(thing),
        cure=f"derive its class from {'BasePolicy' if family == POLICY else 'BaseRewardModel'} and "
        "give it a kind, state and from_state; or save it on its own",
    )


def _below(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def required_hash(policy: object) -> str:
    """The hash of a policy, which must be savable."""
    hash = hash_of(policy)
    if hash is None:
        raise CannotBeSaved(
            "a campaign's policies must be savable, so that what was certified can be served",
            found=f"{type(policy).__name__}",
            cure="give pi0 as a saved folder, an ONNX file or a table; see the policies page",
        )
    return hash
