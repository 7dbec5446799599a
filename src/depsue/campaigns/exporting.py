"""What a serving system takes: the policy, its certificate and the items, in one folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from depsue.artifacts import write_file
from depsue.campaigns.campaign import Campaign
from depsue.certificates.strict import policy_hash
from depsue.data.writing import write_items
from depsue.errors import FileError, require
from depsue.policies import load


def export_campaign(campaign: Campaign, out: str | Path, *, round: int | None = None) -> list[str]:
    """Write what serves to a folder; returns the names of what was written.

    Args:
        campaign: the campaign.
        out: a folder that is not there yet, or is empty.
        round: what this round deployed last; None is what serves now.
    """
    folder = Path(out)
    require(
        not folder.exists() or (folder.is_dir() and not any(folder.iterdir())),
        "an export goes into a folder of its own",
        found=f"{folder} is not empty" if folder.is_dir() else f"{folder} is a file",
        cure="name another folder",
        error=FileError,
    )
    deployed = campaign.ledger.deployments(campaign.name)
    mine = [one for one in deployed if round is None or one.round == round]
    require(
        bool(mine) or round is None,
        "an export is of a round that deployed something",
        found=f"round {round}",
        cure=f"rounds with a deployment: {sorted({one.round for one in deployed}) or 'none yet'}",
    )
    hash = mine[-1].policy_hash if mine else str(campaign.record.settings["pi0"])
    k = mine[-1].round if mine else 0
    source = campaign.folder_of(max(k, 1), hash)
    campaign.policy(max(k, 1), hash)  # intact
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(source, partial / "policy")
    except OSError as problem:
        raise FileError(
            "the folder must be writable and have room",
            found=f"{folder}: {problem.strerror}",
            cure="choose another folder",
        ) from problem
    require(
        policy_hash(load(partial / "policy")) == hash,
        "what is exported must be what was recorded",
        found=f"another policy in {source}",
        error=FileError,
    )
    write_items(campaign.files.items(max(k - 1, 0)), partial / "items.parquet")
    written = ["policy", "items.parquet"]
    attempts = [one for one in campaign.ledger.attempts(campaign.name) if one.certified == hash]
    if attempts and attempts[-1].certificate is not None:
        write_file(partial / "certificate.json", attempts[-1].certificate.encode())
        written.append("certificate.json")
    facts = {
        "campaign": campaign.name,
        "round": k,
        "policy": hash,
        "what": campaign.what_is(max(k, 1), hash).what,
    }
    write_file(partial / "export.json", json.dumps(facts, indent=1).encode())
    if folder.exists():
        folder.rmdir()
    partial.replace(folder)
    return [*written, "export.json"]
