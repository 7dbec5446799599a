"""The secret of a campaign: nobody can foresee what its service draws, and nobody can change it.

A service draws by keyed hashes. Whoever knew the secret could choose keys that draw what he likes.
So it is made at random with the campaign, its file is readable by its owner only, and nothing
exports it. The ledger pins its fingerprint: a service with another secret does not start. A secret
that may be known to others is rotated (`rotate_secret`). Decisions of before stay as they are; keys
that are new from then on draw by the new version.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from depsue import codec
from depsue.campaigns.recorded import RecordedCampaign
from depsue.errors import FileError, require
from depsue.files import write_file

FILE = "secret.json"
BYTES = 32


@dataclass(frozen=True)
class Secret:
    """A secret, and which one it is.

    Args:
        version: 1 for the first; rotation counts on.
        value: 32 bytes.
    """

    version: int
    value: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """SHA-256, which may be shown: 32 random bytes are not guessed from it."""
        return hashlib.sha256(b"depsue secret " + self.value).hexdigest()


def secret_of(campaign: RecordedCampaign) -> Secret:
    """The secret, as the ledger pins it; made now where the campaign has none yet."""
    path, pinned = campaign.files.folder / FILE, _pinned(campaign)
    if not pinned and not path.exists():
        _write_once(path, Secret(1, secrets.token_bytes(BYTES)))
    cure = (
        f"copy {FILE} from the machine where the campaign was first served, or restore it from a "
        f"backup; if it is lost: depsue campaign rotate-secret {campaign.name}"
    )
    require(
        path.exists(),
        "a service draws by the secret of its campaign",
        found=f"no {path}",
        cure=cure,
        error=FileError,
    )
    secret = _read(path, cure)
    if not pinned:
        _pin(campaign, secret)
        pinned = _pinned(campaign)
    require(
        (secret.version, secret.fingerprint) == (max(pinned), pinned[max(pinned)]),
        "the secret of a campaign is the one that the ledger has the fingerprint of",
        found=f"version {secret.version}, fingerprint {secret.fingerprint[:16]} in {path}; the "
        f"ledger has version {max(pinned)}, fingerprint {pinned[max(pinned)][:16]}",
        cure=cure,
        error=FileError,
    )
    return secret


def rotate_secret(campaign: RecordedCampaign) -> Secret:
    """Begin a new epoch with a new secret; services take it up when they are started again."""
    version = max(_pinned(campaign), default=0) + 1
    secret = Secret(version, secrets.token_bytes(BYTES))
    # the file first: if this ends in between, a service refuses to start, and says to rotate again
    write_file(campaign.files.folder / FILE, _encoded(secret), private=True)
    _pin(campaign, secret)
    return secret


@dataclass(frozen=True)
class _SecretFile:
    version: int
    secret: str


def _encoded(secret: Secret) -> bytes:
    return codec.encode(_SecretFile(secret.version, secret.value.hex()), indent=1).encode()


def _read(path: Path, cure: str) -> Secret:
    try:
        file = codec.decode(path.read_bytes(), _SecretFile, what="the secret")
        value = bytes.fromhex(file.secret)
        require(len(value) == BYTES, f"a secret has {BYTES} bytes", error=FileError)
        return Secret(file.version, value)
    except (OSError, ValueError, FileError):
        # what stands in the file is quoted nowhere
        raise FileError("the secret must be readable", found=str(path), cure=cure) from None


def _write_once(path: Path, secret: Secret) -> None:
    """Write the file unless another process was first."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        write_file(partial, _encoded(secret), private=True)
        os.link(partial, path)
    except FileExistsError:
        return
    finally:
        partial.unlink(missing_ok=True)


def _pinned(campaign: RecordedCampaign) -> dict[int, str]:
    """Fingerprints in the ledger, by version."""
    pins = campaign.ledger.pins(campaign.name)
    return {
        int(name.removeprefix("secret ")): sha256
        for (_, name), sha256 in pins.items()
        if name.startswith("secret ")
    }


def _pin(campaign: RecordedCampaign, secret: Secret) -> None:
    pin = {f"secret {secret.version}": secret.fingerprint}
    campaign.ledger.pin(campaign.name, 0, pin, by=campaign.by)
