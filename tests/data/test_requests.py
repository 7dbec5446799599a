from __future__ import annotations

import numpy as np

from depsue.data.catalogue import Catalogue
from depsue.data.logs import LoggedData
from depsue.data.requests import Requests, as_requests

CONTEXTS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_a_plain_array_means_all_candidates() -> None:
    requests = as_requests(CONTEXTS)
    assert requests.contexts is CONTEXTS
    assert requests.candidates == "all"
    assert as_requests(requests) is requests


def test_some_requests_have_their_own_contexts() -> None:
    some = Requests(CONTEXTS)[1:]
    assert len(some) == 2
    assert some.contexts.tolist() == [[2, 3], [4, 5]]


def test_logs_hold_each_distinct_request_once() -> None:
    logs = LoggedData.from_arrays(
        contexts=CONTEXTS[[0, 1, 0]],
        actions=[0, 1, 1],
        rewards=[0.0, 1.0, 1.0],
        propensities=[0.5, 0.5, 0.5],
        catalogue=Catalogue.of([0, 1]),
        r_max=1.0,
    )
    assert len(logs.requests) == 2
    assert logs.requests.contexts is logs.contexts
    assert logs.requests.contexts[logs.context].tolist() == [[0, 1], [2, 3], [0, 1]]
