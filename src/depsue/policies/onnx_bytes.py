"""Does an ONNX file keep some of its weights in other files? Read off its bytes alone.

onnxruntime looks for such files in the working directory, also where a model is given as bytes: the
same bytes would be another model elsewhere, and no hash of them would tell. The walk follows the
messages of onnx.proto that can hold a tensor; what it cannot read is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

INSIDE = {
    "Model": {7: "Graph", 20: "TrainingInfo", 25: "Function"},
    "TrainingInfo": {1: "Graph", 2: "Graph"},
    "Graph": {1: "Node", 5: "Tensor", 15: "SparseTensor"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {
        5: "Tensor",
        6: "Graph",
        10: "Tensor",
        11: "Graph",
        22: "SparseTensor",
        23: "SparseTensor",
    },
    "SparseTensor": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
}
"""By message: the field numbers that can lead to a tensor, and the message each holds."""
NAME, EXTERNAL_DATA, DATA_LOCATION = 8, 13, 14
"""Fields of a tensor."""


def external_tensor(content: bytes) -> str | None:
    """The name of a tensor that is kept in another file; None if there is none.

    Raises ValueError if the bytes are not messages.
    """
    waiting = [("Model", memoryview(content))]
    while waiting:
        message, part = waiting.pop()
        name, outside = "", False
        for number, value in _fields(part):
            below = INSIDE[message].get(number)
            if below is not None and isinstance(value, memoryview):
                waiting.append((below, value))
            elif message == "Tensor" and number == NAME and isinstance(value, memoryview):
                name = bytes(value).decode(errors="replace")
            elif message == "Tensor" and number in (EXTERNAL_DATA, DATA_LOCATION):
                outside = outside or number == EXTERNAL_DATA or value != 0
        if outside:
            return name
    return None


def _fields(part: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """(number, value) of each field: a whole number, or the bytes."""
    at = 0
    while at < len(part):
        tag, at = _whole_number(part, at)
        kind = tag & 7
        if kind == 0:
            value, at = _whole_number(part, at)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _whole_number(part, at)
        if size is None or at + size > len(part):
            raise ValueError("not a message")
        yield tag >> 3, part[at : at + size]
        at += size


def _whole_number(part: memoryview, at: int) -> tuple[int, int]:
    """A number in base 128, and where the next byte is."""
    value = 0
    for place in range(10):
        if at + place >= len(part):
            break
        byte = part[at + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, at + place + 1
    raise ValueError("not a message")
