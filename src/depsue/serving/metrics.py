"""Counts, latencies and values of the moment, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from depsue.serving.monitor import MonitorState
from depsue.serving.service import Service

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters and latencies since the start."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Labels], float] = {}
        self._seconds: dict[str, list[float]] = {}
        self._buckets: dict[str, list[int]] = {}

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        key = (name, tuple(sorted(labels.items())))
        self._counts[key] = self._counts.get(key, 0) + by

    def took(self, route: str, seconds: float) -> None:
        """Note how long a request took."""
        buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[bisect_left(BUCKETS, seconds)] += 1
        total = self._seconds.setdefault(route, [0.0])
        total[0] += seconds

    def text(self, gauges: dict[str, float]) -> str:
        """In Prometheus' text format, with values of the present moment."""
        return "\n".join([*self._lines(gauges), ""])

    def _lines(self, gauges: dict[str, float]) -> Iterator[str]:
        for name in sorted({name for name, _ in self._counts}):
            yield f"# TYPE depsue_{name}_total counter"
            for (other, labels), value in sorted(self._counts.items()):
                if other == name:
                    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
                    yield f"depsue_{name}_total{{{inner}}} {_number(value)}"
        for name, value in gauges.items():
            yield f"# TYPE depsue_{name} gauge"
            yield f"depsue_{name} {_number(value)}"
        yield "# TYPE depsue_request_seconds histogram"
        for route, buckets in sorted(self._buckets.items()):
            so_far = 0
            for limit, count in zip((*BUCKETS, None), buckets, strict=True):
                so_far += count
                le = "+Inf" if limit is None else f"{limit:g}"
                yield f'depsue_request_seconds_bucket{{route="{route}",le="{le}"}} {so_far}'
            yield f'depsue_request_seconds_sum{{route="{route}"}} {self._seconds[route][0]:.6f}'
            yield f'depsue_request_seconds_count{{route="{route}"}} {so_far}'


def gauges(service: Service) -> dict[str, float]:
    """Values of the present moment."""
    status, run = service.status, service.monitor.run
    values = {
        "round": float(status.round),
        "waiting": float(status.waiting),
        "store_gone": float(bool(status.store.gone)),
        "spooled": float(status.store.spooled),
        "policy_refused": float(bool(status.problem)),
        "monitor_state": float(list(MonitorState).index(status.monitor.state)),
    }
    if run is not None and run.points:
        point = run.points[-1]
        mean, low, high = point.policy
        values |= {"value": mean, "value_lower": low, "value_upper": high}
        values |= {"novelty": point.novelty, "closed_decisions": float(point.n)}
    return values


def _number(value: float) -> str:
    """All its digits: a rate is a difference of counts."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
