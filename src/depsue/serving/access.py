"""Who may do what, and how much: bearer tokens of three roles, of which only hashes are kept.

A token is 32 random bytes, so one round of SHA-256 is enough: there is nothing to guess. All are
compared in constant time. `TokenLimits` is what each token may send.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from depsue import codec
from depsue.errors import DepsueError, FileError, require, short
from depsue.files import take_turn, write_file

Role = Literal["decide", "reward", "admin"]
ROLES: tuple[str, ...] = get_args(Role)
FILE = "tokens.json"


_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Token:
    """A token, without the secret itself.

    Args:
        name: whose it is, or what for.
        role: what it opens.
        sha256: of the secret.
        made: when, UTC.
    """

    name: str
    role: Role
    sha256: str
    made: str


class Access:
    """The tokens of a folder of campaigns.

    Args:
        folder: of all campaigns.
        open_to_all: whether no token is asked for; only for loopback.
    """

    def __init__(self, folder: str | Path, *, open_to_all: bool = False) -> None:
        self._path, self.open_to_all = Path(folder) / FILE, open_to_all
        self._known = self._read()

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Every token, in the order in which they were made."""
        return tuple(self._known)

    def add(self, role: str, name: str) -> str:
        """Make a token; this is the only time that it is seen."""
        require(role in ROLES, f"a role is one of {', '.join(ROLES)}", found=short(role))
        ok = 0 < len(name) <= 100 and name.isprintable()
        require(ok, "a token's name has 1 to 100 printable characters", found=short(name))
        secret = f"depsue_{secrets.token_urlsafe(32)}"
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        with self._changing() as tokens:
            taken = any(token.name == name for token in tokens)
            require(not taken, "tokens have names of their own", found=name, cure="remove it first")
            tokens.append(Token(name, cast(Role, role), _hash(secret), made=now))
        return secret

    def remove(self, name: str) -> None:
        """Forget a token; services notice within seconds."""
        with self._changing() as tokens:
            rest = [token for token in tokens if token.name != name]
            require(len(rest) < len(tokens), "there must be such a token", found=short(name))
            tokens[:] = rest

    @property
    def path(self) -> Path:
        """The file of tokens."""
        return self._path

    def allows(self, secret: str | None, role: str) -> bool:
        """Whether a token, as a caller sent it, may act in a role; an admin may do everything."""
        return self.caller(secret, role) is not None

    def caller(self, secret: str | None, role: str) -> str | None:
        """The name of a token that may act in a role; None if it may not, "" if all may."""
        if self.open_to_all:
            return ""
        if secret is None or len(secret) > 200:
            return None
        digest, name = _hash(secret), None
        for token in self._known:  # all of them, so that the time tells nothing
            if hmac.compare_digest(token.sha256, digest) and token.role in (role, "admin"):
                name = token.name
        return name

    def refresh(self) -> None:
        """Read the file again; a damaged one leaves things as they are."""
        try:
            self._known = self._read()
        except FileError:
            return

    def _read(self) -> list[Token]:
        try:
            tokens = codec.decode(self._path.read_bytes(), _File, what="the tokens").tokens
            wrong = [token.name for token in tokens if not _HASH.fullmatch(token.sha256)]
            rule = "the sha256 of a token has 64 hexadecimal digits"
            require(not wrong, rule, found=f"token {short(wrong[:1])}", error=FileError)
            return tokens
        except FileNotFoundError:
            return []
        except (OSError, FileError) as problem:
            raise FileError(
                "the file of tokens must be readable",
                found=f"{self._path}: {short(str(problem))}",
                cure="restore it from a copy, or remove it and make new tokens",
            ) from problem

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """The tokens as they are on disk, to change: no other process does so meanwhile."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with take_turn(f"{self._path}.lock"):
            tokens = self._read()
            yield tokens
            write_file(self._path, codec.encode(_File(tokens), indent=1).encode())
            self._path.chmod(0o600)
            self._known = tokens


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class TooMuch(DepsueError):
    """A token sends more than it may; `seconds` says when to try again."""

    def __init__(self, rule: str, seconds: float, *, found: str, cure: str) -> None:
        super().__init__(rule, found=found, cure=cure)
        self.seconds = max(1, math.ceil(seconds))


HOUR = 3600.0


class TokenLimits:
    """What each token may send: so much a second, and so many rewards of unknown decisions an hour.

    A reward may come before its decision is known here: another service made it, or it waits in a
    journal. So rewards of unknown ids are stored, up to a limit. A decision that becomes known
    makes room again.

    Args:
        rate: decisions and rewards in a second; as many at once, or a whole batch.
        unknown: ids that are not known, in an hour.
        batch: decisions or rewards in the largest request.
        clock: seconds.
    """

    def __init__(
        self,
        rate: float,
        unknown: int,
        *,
        batch: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._most_unknown = rate, unknown
        self._at_once, self._clock = max(rate, batch), clock
        self._left: dict[str, tuple[float, float]] = {}
        """By token: what it may send at once, and when that was so."""
        self._unknown: dict[str, dict[str, float]] = {}
        """By token: ids that are not known yet, and when they came."""
        self._turn = threading.Lock()

    def spend(self, token: str, count: int) -> None:
        """Count decisions or rewards of a token; `TooMuch` if they are too many."""
        now = self._clock()
        left, at = self._left.get(token, (self._at_once, now))
        left = min(left + (now - at) * self._rate, self._at_once)
        if count > left:
            raise TooMuch(
                f"a token may send {self._rate:g} decisions and rewards a second",
                (count - left) / self._rate,
                found=f"{count:,} more than that" if count > 1 else "one more than that",
                cure="try again after the seconds of Retry-After; serve with another --rate",
            )
        self._left[token] = left - count, now

    def admit(
        self, token: str, unknown: Collection[str], look_up: Callable[[list[str]], set[str]]
    ) -> None:
        """Count ids that are not known; `TooMuch` if they are too many.

        Args:
            token: whose.
            unknown: the ids.
            look_up: says which of some ids are known by now.
        """
        with self._turn:
            now, table = self._clock(), self._unknown.setdefault(token, {})
            new = [id for id in unknown if id not in table]
            if len(table) + len(new) > self._most_unknown:
                for id in [id for id, at in table.items() if now - at >= HOUR]:
                    del table[id]
                for id in look_up(list(table)):
                    table.pop(id, None)
            if len(table) + len(new) > self._most_unknown:
                oldest = min(table.values(), default=now)
                raise TooMuch(
                    f"a token may send {self._most_unknown:,} rewards an hour for decisions that "
                    "are not known",
                    HOUR - (now - oldest),
                    found=f"{len(new):,} more, after {len(table):,}",
                    cure="send rewards with the ids that /v1/decide answered; serve with another "
                    "--unknown",
                )
            table.update(dict.fromkeys(new, now))


@dataclass(frozen=True)
class _File:
    tokens: list[Token]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
