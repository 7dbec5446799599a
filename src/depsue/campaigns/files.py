"""The files of a campaign: a folder for each round, all written whole or not at all.

::

    HOME/ledger.db                    the ledger, unless it is elsewhere
    HOME/NAME/pi0/                    the logging policy
    HOME/NAME/round-0/items.parquet   the catalogue that round 0's rows are read with
    HOME/NAME/round-0/mapping.toml    which column of its logs is what
    HOME/NAME/round-1/candidate-.../  what was fixed before the verdict
    HOME/NAME/round-1/policy-.../     what may be served: certified, or certain

Rows of logs stay where the team keeps them.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from depsue import artifacts
from depsue.data.catalogue import ActionCatalogue
from depsue.data.files import read_items
from depsue.data.mapping import LogMapping
from depsue.data.mapping_file import read_mapping, to_toml
from depsue.data.writing import write_items
from depsue.errors import require, short

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class CampaignFiles:
    """Where the files of one campaign are.

    Args:
        home: the folder of all campaigns.
        name: of the campaign.
    """

    def __init__(self, home: str | Path, name: str) -> None:
        require(
            isinstance(name, str) and _NAME.fullmatch(name) is not None,
            "a campaign's name has 1 to 64 letters, digits, - and _: it names a folder",
            found=short(name),
            cure="for example spring-2027",
        )
        self.folder = Path(home) / name

    @property
    def pi0(self) -> Path:
        """The folder of the logging policy."""
        return self.folder / "pi0"

    def round(self, k: int) -> Path:
        """The folder of one round."""
        return self.folder / f"round-{k}"

    def candidate(self, k: int, hash: str) -> Path:
        """The folder of a candidate."""
        return self.round(k) / f"candidate-{hash[:16]}"

    def policy(self, k: int, hash: str) -> Path:
        """The folder of a policy that may be served."""
        return self.round(k) / f"policy-{hash[:16]}"

    def save_items(self, k: int, catalogue: ActionCatalogue) -> None:
        """Keep the catalogue of round k; it is an items file like the team's own."""
        write_items(catalogue, self.round(k) / "items.parquet")

    def items(self, k: int) -> ActionCatalogue:
        """The catalogue of round k."""
        found = read_items(self.round(k) / "items.parquet", id="id").catalogue
        features = None if found.features is None else np.asarray(found.features)
        return ActionCatalogue(found.ids, found.novel, features)

    def save_place(self, k: int, place: str) -> None:
        """Remember that the logs of round k were moved."""
        artifacts.write_file(self.round(k) / "place.txt", place.encode())

    def place(self, k: int) -> str | None:
        """Where the logs of round k were moved to; None if they were not."""
        path = self.round(k) / "place.txt"
        return path.read_text() if path.exists() else None

    def save_mapping(self, k: int, mapping: LogMapping) -> None:
        """Keep the mapping of round k."""
        artifacts.write_file(self.round(k) / "mapping.toml", to_toml(mapping).encode())

    def mapping(self, k: int) -> LogMapping:
        """The mapping of round k."""
        return read_mapping(self.round(k) / "mapping.toml")
