"""A proxy between a service and PostgreSQL: it cuts connections around a commit, or goes silent.

The two moments that matter are just before a commit reaches the server, when nothing was written,
and just after, when everything was written and nobody was told. A silent proxy accepts bytes and
connections and passes none on, as a network does that has lost its route.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal

from depsue_research.soak.servers import free_port

Moment = Literal["before", "after"]


class CutProxy:
    """Passes bytes on between its own port and another.

    Args:
        target: the port of the server.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._armed: Moment | None = None
        self._pairs: set[_Pair] = set()
        self.cuts = 0
        """Connections that were cut around a commit."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, moment: Moment) -> None:
        """Cut the connection of the next commit that writes, before it arrives or after it."""
        self._armed = moment

    @property
    def armed(self) -> bool:
        """Whether the next commit will be cut."""
        return self._armed is not None

    def disarm(self) -> None:
        """Cut no commit."""
        self._armed = None

    def silence(self) -> None:
        """Pass nothing on."""
        self._flows.clear()

    def speak(self) -> None:
        """Pass on again, also what came meanwhile."""
        self._flows.set()

    def cut(self) -> None:
        """Cut every connection."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.close()

    def close(self) -> None:
        """End."""
        self._listener.close()
        self._flows.set()
        self.cut()

    def take_armed(self) -> Moment | None:
        """When to cut the commit that was just seen; None for not at all."""
        with self._lock:
            moment, self._armed = self._armed, None
            self.cuts += moment is not None
            return moment

    def wait_for_flow(self) -> None:
        """Wait while the proxy is silent."""
        self._flows.wait()

    def forget(self, pair: _Pair) -> None:
        """A connection has ended."""
        with self._lock:
            self._pairs.discard(pair)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self.wait_for_flow()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
        except OSError:
            near.close()
            return
        far.settimeout(None)
        pair = _Pair(self, near, far)
        with self._lock:
            self._pairs.add(pair)
        threading.Thread(target=pair.ask, daemon=True).start()
        pair.answer()


class _Pair:
    """One connection: `near` leads to the service, `far` to the server."""

    def __init__(self, proxy: CutProxy, near: socket.socket, far: socket.socket) -> None:
        self._proxy, self._near, self._far = proxy, near, far
        self._cut_answer = False
        self._wrote = False
        """Whether the transaction has inserted something: the server says so, row by row."""
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> None:
        """Pass on what the service asks, until one side ends."""
        with suppress(OSError):
            while data := self._near.recv(1 << 16):
                self._proxy.wait_for_flow()
                moment = None
                if b"COMMIT" in data and self._wrote:
                    moment, self._wrote = self._proxy.take_armed(), False
                if moment == "before":
                    break
                self._cut_answer = moment == "after"
                self._far.sendall(data)
        if not self._cut_answer:
            self.close()

    def answer(self) -> None:
        """Pass on what the server answers, until one side ends."""
        with suppress(OSError):
            while data := self._far.recv(1 << 16):
                self._proxy.wait_for_flow()
                if self._cut_answer:  # it is committed, and nobody will know
                    break
                self._wrote = self._wrote or b"INSERT 0 " in data
                self._near.sendall(data)
        self.close()

    def close(self) -> None:
        """End both sides."""
        for end in (self._near, self._far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._proxy.forget(self)
