"""The exported policy as a plain function: numpy alone, so that a team's own ranker can apply it.

`depsue campaign export` puts a copy of this file beside the policy; nothing of depsue is needed::

    from scoring import Scorer

    scorer = Scorer("serving-1")
    p = scorer.probabilities(items, pi0=[0.6, 0.4, 0.0], context=x)        # of the candidates
    share, g = scorer.beside_pi0(items, context=x)                         # where pi0 is chosen

Draw an item by p, show it, and log p of it. With `beside_pi0` show pi0's own choice with the
probability `share`, else draw by g, which sums to 1 - share.

The formulas, for the candidates a of one request, p0 of pi0 and q = q-hat(x, a)::

    mixture     sum over its parts of weight x part
    tilted      p0 (keep + (1 - keep) g / sum of p0 g), g = 1 / (exp(-strength s) + 1 / cap),
                s = (q - sum of p0 q) / scale
    by-model    among the new candidates: even / their number
                + (1 - even) c_a exp(strength q / scale) / the sum of these

q-hat is worked out from the features of the items that the policy was saved with. A ranker that has
it already, or a better one, passes `q_hat`: the promise then is about another policy.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

KINDS = (
    *("brought", "chosen", "mixture", "tilted", "by-model", "or-else", "uniform", "by-item"),
    "adapted",
)
"""Policies that this file can apply, beside pi0 itself, whatever it is."""
FILE = "scoring.json"


class Scorer:
    """An exported policy.

    Args:
        folder: of the export.
    """

    def __init__(self, folder: str | Path) -> None:
        place = Path(folder)
        facts = json.loads((place / FILE).read_text())
        manifest = json.loads((place / "policy" / "manifest.json").read_text())["manifest"]
        self._kind: str = manifest["kind"]
        self._settings: dict[str, Any] = manifest["settings"]["policy"]
        self._arrays: dict[str, Any] = {}
        for name in manifest["files"]:
            self._arrays |= _arrays_in(place / "policy" / Path(name).name)
        self._places = {id: at for at, id in enumerate(facts["ids"])}
        self._pi0 = set(facts["pi0"])

    def probabilities(
        self, items: Sequence[Any], pi0: Any, context: Any = None, q_hat: Any = None
    ) -> Any:
        """(L,) the policy's probabilities of the candidates of one request.

        Args:
            items: their ids.
            pi0: (L,) pi0's probabilities of them.
            context: (d,) as the mapping makes it: numbers in its order, then 1 or 0 for each
                declared value of each text column.
            q_hat: (L,) predictions of your own in place of the policy's; then no context is needed.
        """
        share, table = self._ask(items, pi0, context, q_hat)
        if share > 0:
            raise ValueError("this policy rests on pi0's own choice: ask beside_pi0")
        return table / table.sum()

    def beside_pi0(
        self, items: Sequence[Any], context: Any = None, q_hat: Any = None
    ) -> tuple[float, Any]:
        """(lambda, (L,) g): pi0's own choice is shown with probability lambda, else g draws.

        Args:
            items, context, q_hat: as above.
        """
        share, table = self._ask(items, None, context, q_hat)
        total = share + table.sum()
        return share / total, table / total

    def _ask(self, items: Sequence[Any], pi0: Any, context: Any, q_hat: Any) -> tuple[float, Any]:
        unknown = [item for item in items if item not in self._places]
        if unknown:
            raise KeyError(f"no item of the export: {unknown[0]!r} ({len(unknown)} such)")
        places = np.array([self._places[item] for item in items])
        p0 = None if pi0 is None else np.asarray(pi0, dtype=np.float64)
        if p0 is not None and (p0.shape != places.shape or not abs(p0.sum() - 1) < 1e-3):
            raise ValueError("pi0's probabilities are one for each candidate, and sum to 1")
        x = None if context is None else np.asarray(context, dtype=np.float32)
        q = None if q_hat is None else np.asarray(q_hat, dtype=np.float64)
        asked = _Asked(self._arrays, self._pi0, places, p0, x, q)
        return asked.policy(self._kind, self._settings, "")


class _Asked:
    """One request.

    Args:
        arrays: of the policy, by name.
        pi0: prefixes of the parts that are pi0 itself.
        places: (L,) of the candidates among the items.
        p0: (L,) pi0's probabilities; None where pi0's own choice stands for them.
        x: (d,) the context.
        q: (L,) predictions in place of q-hat.
    """

    def __init__(
        self, arrays: Mapping[str, Any], pi0: set[str], places: Any, p0: Any, x: Any, q: Any
    ) -> None:
        self._arrays, self._pi0, self._places = arrays, pi0, places
        self._p0, self._x, self._q = p0, x, q

    def policy(self, kind: str, settings: Mapping[str, Any], at: str) -> tuple[float, Any]:
        """(lambda, (L,)) of a policy whose arrays begin with `at`."""
        if at in self._pi0 or kind in ("brought", "chosen"):
            nothing = np.zeros(len(self._places))
            return (1.0, nothing) if self._p0 is None else (0.0, self._p0)
        if kind == "mixture":
            pairs = [
                self._part(part, f"{at}{place}.") for place, part in enumerate(settings["parts"])
            ]
            weights = settings["weights"]
            shares = sum(w * share for w, (share, _) in zip(weights, pairs, strict=True))
            return shares, sum(w * table for w, (_, table) in zip(weights, pairs, strict=True))
        if kind == "or-else":
            share, table = self._part(settings["first"], f"{at}first.")
            shown = share + table.sum() > 0
            return (share, table) if shown else self._part(settings["otherwise"], f"{at}otherwise.")
        if kind == "tilted":
            return 0.0, self._tilted(settings, at)
        if kind == "by-model":
            return 0.0, self._by_model(settings, at)
        if kind == "uniform":
            return 0.0, _held(self._picked(f"{at}support"))
        if kind == "by-item":
            return 0.0, _held(self._picked(f"{at}shares"))
        if kind == "adapted":
            share, table = self.policy(settings["kind"], settings["settings"], f"{at}inner.")
            return share, _held(table * (self._picked(f"{at}allowed") > 0)) * (1 - share)
        raise ValueError(f"a policy of kind {kind!r} has no plain formula")

    def _part(self, part: Mapping[str, Any], at: str) -> tuple[float, Any]:
        return self.policy(part["kind"], part["settings"], at)

    def _tilted(self, settings: Mapping[str, Any], at: str) -> Any:
        share, base = self._part(settings["base"], f"{at}base.")
        if share > 0:
            raise ValueError("a tilt needs pi0's probabilities of all candidates")
        q = self._q_hat(settings["model"], f"{at}model.")
        with np.errstate(over="ignore"):
            lower = np.exp((base @ q - q) * (settings["strength"] / settings["scale"]))
        g = base / (lower + 1 / settings["cap"])
        return (1 - settings["keep"]) * _held(g) + settings["keep"] * base

    def _by_model(self, settings: Mapping[str, Any], at: str) -> Any:
        new = self._picked(f"{at}support") > 0
        if not new.any():
            return np.zeros(len(new))
        q = self._q_hat(settings["model"], f"{at}model.")
        rise = (q - q[new].max()) * (settings["strength"] / settings["scale"])
        g = np.where(new, np.exp(np.minimum(rise, 0.0)) * self._picked(f"{at}factors"), 0.0)
        return (1 - settings["even"]) * _held(g) + settings["even"] * _held(new.astype(float))

    def _picked(self, name: str) -> Any:
        """(L,) an array over the items at the candidates; 0 for items that came after it."""
        values = self._arrays[name]
        known = self._places < len(values)
        return np.where(known, values[np.where(known, self._places, 0)], 0).astype(np.float64)

    def _q_hat(self, model: Mapping[str, Any], at: str) -> Any:
        """(L,) predictions; in single precision, as the policy was certified."""
        if self._q is not None:
            return self._q
        return self._model(model["kind"], model["settings"], at).astype(np.float32).astype(float)

    def _model(self, kind: str, settings: Mapping[str, Any], at: str) -> Any:
        if kind == "blend":
            models = settings["models"]
            each = [
                self._model(model["kind"], model["settings"], f"{at}{place}.")
                for place, model in enumerate(models)
            ]
            return sum(each) / len(models)
        if self._x is None:
            raise ValueError("q-hat needs the context; or pass q_hat")
        if kind == "linear":
            by_context = (
                settings["constant"] + self._x.astype(float) @ self._arrays[f"{at}of_context"]
            )
            total = by_context + self._arrays[f"{at}of_action"][self._places]
            return np.clip(total, 0.0, settings["r_max"])
        if kind == "mlp":
            return self._mlp(settings, at)
        raise ValueError(f"a reward model of kind {kind!r} has no plain formula: pass q_hat")

    def _mlp(self, settings: Mapping[str, Any], at: str) -> Any:
        features = self._arrays[f"{at}features"][self._places]
        x = np.broadcast_to(self._x, (len(features), len(self._x)))
        inputs = np.concatenate([x, features], axis=1) - self._arrays[f"{at}shift"]
        h = (inputs * self._arrays[f"{at}scale"])[None]
        for layer in range(settings["layers"]):
            h = h @ self._arrays[f"{at}weight{layer}"] + self._arrays[f"{at}bias{layer}"]
            h = np.maximum(h, 0.0) if layer + 1 < settings["layers"] else h
        members = settings["r_max"] / (1 + np.exp(-h[..., 0]))
        if settings["combine"] == "min":
            return members.min(axis=0)
        mean = members.mean(axis=0)
        hopeful = settings["combine"] == "optimistic"
        return np.minimum(mean + members.std(axis=0), settings["r_max"]) if hopeful else mean


def _held(values: Any) -> Any:
    total = values.sum()
    return values / total if total > 0 else values


def _arrays_in(path: Path) -> dict[str, Any]:
    """The arrays of a safetensors file: a length, a head in JSON, then the bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    head = json.loads(content[8 : 8 + length])
    types = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}
    arrays = {}
    for name, entry in head.items():
        if name != "__metadata__" and entry["dtype"] in types:
            start, end = entry["data_offsets"]
            part = content[8 + length + start : 8 + length + end]
            arrays[name] = np.frombuffer(part, types[entry["dtype"]]).reshape(entry["shape"])
    return arrays
