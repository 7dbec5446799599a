"""Who may do what: bearer tokens of three roles, of which only hashes are kept.

A token is 32 random bytes, so one round of SHA-256 is enough: there is nothing to guess. All are
compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from depsue import codec
from depsue.errors import FileError, require, short
from depsue.files import write_file

Role = Literal["decide", "reward", "admin"]
ROLES: tuple[str, ...] = get_args(Role)
FILE = "tokens.json"


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
        taken = any(token.name == name for token in self._known)
        require(not taken, "tokens have names of their own", found=name, cure="remove it first")
        secret = f"depsue_{secrets.token_urlsafe(32)}"
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        self._write([*self._known, Token(name, cast(Role, role), _hash(secret), made=now)])
        return secret

    def remove(self, name: str) -> None:
        """Forget a token; services notice within seconds."""
        rest = [token for token in self._known if token.name != name]
        require(len(rest) < len(self._known), "there must be such a token", found=short(name))
        self._write(rest)

    def allows(self, secret: str | None, role: str) -> bool:
        """Whether a token, as a caller sent it, may act in a role; an admin may do everything."""
        if self.open_to_all:
            return True
        if secret is None or len(secret) > 200:
            return False
        digest, allowed = _hash(secret), False
        for token in self._known:  # all of them, so that the time tells nothing
            same = hmac.compare_digest(token.sha256, digest)
            allowed |= same and token.role in (role, "admin")
        return allowed

    def refresh(self) -> None:
        """Read the file again; a damaged one leaves things as they are."""
        try:
            self._known = self._read()
        except FileError:
            return

    def _read(self) -> list[Token]:
        try:
            return codec.decode(self._path.read_bytes(), _File, what="the tokens").tokens
        except FileNotFoundError:
            return []
        except (OSError, FileError) as problem:
            raise FileError(
                "the file of tokens must be readable",
                found=f"{self._path}: {short(str(problem))}",
                cure="restore it from a copy, or remove it and make new tokens",
            ) from problem

    def _write(self, tokens: list[Token]) -> None:
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


@dataclass(frozen=True)
class _File:
    tokens: list[Token]


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
