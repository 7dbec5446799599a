"""Who may do what: bearer tokens of three roles, of which only hashes are kept.

A token is 32 random bytes, so one round of SHA-256 is enough: there is nothing to guess. All are
compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import secrets
import time
from pathlib import Path
from typing import Any

from depsue.errors import FileError, require, short
from depsue.files import write_file

ROLES = ("decide", "reward", "admin")
FILE = "tokens.json"


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
    def names(self) -> list[tuple[str, str, str]]:
        """(name, role, when it was made) of every token."""
        return [(one["name"], one["role"], one["made"]) for one in self._known]

    def add(self, role: str, name: str) -> str:
        """Make a token; this is the only time that it is seen."""
        require(role in ROLES, f"a role is one of {', '.join(ROLES)}", found=short(role))
        ok = 0 < len(name) <= 100 and name.isprintable()
        require(ok, "a token's name has 1 to 100 printable characters", found=short(name))
        taken = any(one["name"] == name for one in self._known)
        require(not taken, "tokens have names of their own", found=name, cure="remove it first")
        token = f"depsue_{secrets.token_urlsafe(32)}"
        made = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        one = {"name": name, "role": role, "sha256": _hash(token), "made": made}
        self._write([*self._known, one])
        return token

    def remove(self, name: str) -> None:
        """Forget a token; services notice within seconds."""
        rest = [one for one in self._known if one["name"] != name]
        require(len(rest) < len(self._known), "there must be such a token", found=short(name))
        self._write(rest)

    def allows(self, token: str | None, role: str) -> bool:
        """Whether a token may act in a role; an admin may do everything."""
        if self.open_to_all:
            return True
        if token is None or len(token) > 200:
            return False
        found = _hash(token)
        ok = False
        for one in self._known:  # all of them, in constant time
            same = hmac.compare_digest(one["sha256"], found)
            ok |= same and one["role"] in (role, "admin")
        return ok

    def refresh(self) -> None:
        """Read the file again; a damaged one leaves things as they are."""
        try:
            self._known = self._read()
        except FileError:
            return

    def _read(self) -> list[dict[str, Any]]:
        try:
            found = json.loads(self._path.read_text())["tokens"]
            for one in found:
                ok = {"name", "role", "sha256", "made"} <= set(one) and one["role"] in ROLES
                if not ok or not all(isinstance(value, str) for value in one.values()):
                    raise ValueError("a token has a name, a role, a sha256, and when it was made")
            return list(found)
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise FileError(
                "the file of tokens must be readable",
                found=f"{self._path}: {short(str(problem))}",
                cure="restore it from a copy, or remove it and make new tokens",
            ) from problem

    def _write(self, tokens: list[dict[str, Any]]) -> None:
        write_file(self._path, json.dumps({"tokens": tokens}, indent=1).encode())
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


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
