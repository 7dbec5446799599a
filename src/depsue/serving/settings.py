"""What is declared when a campaign is served, and where a service keeps its files.

Settings are written beside the campaign's files, so that a restart needs no options and nobody
changes by accident what decides which reward a decision has.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from depsue import codec, defaults
from depsue.campaigns import Campaign
from depsue.data.mapping import LogMapping
from depsue.errors import FileError, is_real, require, require_delta, short
from depsue.files import write_file

STORE = "decisions.db"
JOURNAL = "journal"
SPOOL = "spool"
"""What the journal was called in the first version."""
STOPS = "stops.jsonl"
STOPPED, STOPPED_BEFORE = "stopped.json", "tripped.json"
"""Where earlier versions wrote a stop."""
FILE = "serving.json"
RULES = ("first", "largest", "sum")


@dataclass(frozen=True)
class ServingSettings:
    """What is declared when a campaign is served.

    Args:
        wait: seconds after a decision in which its rewards count.
        default_reward: of a decision that got none in that time, in the units of the logs.
        combine: the reward of a decision with several: the first, the largest, or their sum.
        holdout: share of traffic that stays on pi0 at first; the rest is on the policy.
        ramp: shares on the policy, rising, that every deployment goes through; () for none.
        every: seconds that a ramp stays at each.
        delta: how often the monitor may raise a false alarm, over the campaign's life.
        cycle: seconds of a whole cycle; absolute floors and those over units are judged by cycles.
        permit: seconds for which the policy explores after a completed look of the monitor.
        backlog: closed decisions that may wait for the monitor while the policy explores.
        on_gone: while the store is gone, go on from "pi0" into the journal, or "stop".
        most_waiting: decisions and rewards that may wait before requests are refused.
        most_candidates: that one request may bring.
        rate: decisions and rewards that one token may send in a second.
        unknown: rewards that one token may send in an hour for decisions that are not known yet.
        pi0_url: an address of the team's that decides in place of the saved pi0 on fallback.
    """

    wait: float = defaults.WAIT
    default_reward: float = defaults.DEFAULT_REWARD
    combine: str = defaults.COMBINE
    holdout: float = defaults.HOLDOUT
    ramp: tuple[float, ...] = ()
    every: float = defaults.EVERY
    delta: float = defaults.FALSE_ALARMS
    cycle: float = defaults.CYCLE
    permit: float = defaults.PERMIT
    backlog: int = defaults.BACKLOG
    on_gone: str = defaults.ON_GONE
    most_waiting: int = defaults.MOST_WAITING
    most_candidates: int = defaults.MOST_CANDIDATES
    rate: float = defaults.RATE
    unknown: int = defaults.UNKNOWN
    pi0_url: str | None = None

    def __post_init__(self) -> None:
        for ok, rule, found in (
            (is_real(self.wait) and 0 <= self.wait <= 3.2e7, "wait: 0 s to a year", self.wait),
            (is_real(self.default_reward) and abs(self.default_reward) < 1e300,
             "the default reward must be a number", self.default_reward),
            (self.combine in RULES, f"combine is one of {', '.join(RULES)}", self.combine),
            (is_real(self.holdout) and 0 <= self.holdout <= 1, "holdout must lie in [0, 1]",
             self.holdout),
            (all(is_real(share) and 0 < share <= 1 for share in self.ramp)
             and list(self.ramp) == sorted(set(self.ramp)),
             "a ramp has shares in (0, 1], each larger than the one before", self.ramp),
            (is_real(self.every) and 1 <= self.every <= 3.2e7, "every: 1 s to a year, in seconds",
             self.every),
            (is_real(self.cycle) and 0 < self.cycle <= 3.2e7, "cycle: up to a year, in seconds",
             self.cycle),
            (is_real(self.permit) and 2 <= self.permit <= 86400,
             "permit: 2 s to a day; the monitor looks once a second", self.permit),
            (1000 <= self.backlog <= 10_000_000, "backlog: 1,000 to 10,000,000 decisions",
             self.backlog),
            (self.on_gone in ("pi0", "stop"), "on_gone is pi0 or stop", self.on_gone),
            (1 <= self.most_waiting <= 1_000_000, "most_waiting: 1 to 1,000,000",
             self.most_waiting),
            (1 <= self.most_candidates <= 100_000, "most_candidates: 1 to 100,000",
             self.most_candidates),
            (is_real(self.rate) and 1 <= self.rate <= 1e9, "rate: 1 to 1e9 a second", self.rate),
            (0 <= self.unknown <= 1_000_000, "unknown: 0 to 1,000,000 an hour", self.unknown),
            (self.pi0_url is None or self.pi0_url.startswith(("http://", "https://")),
             "pi0's address begins with http:// or https://", self.pi0_url),
        ):  # fmt: skip
            require(ok, rule, found=short(found))
        require_delta(self.delta)


LASTING = ("wait", "default_reward", "combine")
"""What decides which reward a decision has: fixed when the campaign is first served."""
PIN = "rewards of decisions"
"""The name under which the ledger pins it."""


def settings_of(campaign: Campaign, options: dict[str, Any], *, begun: bool) -> ServingSettings:
    """The settings of a campaign, as `declared` has them, held against what the ledger pins.

    Args:
        campaign: which; what decides its rewards is pinned now, if it is not yet.
        options: settings by name, those that change.
        begun: whether there is a store of decisions.
    """
    pinned = campaign.ledger.pins(campaign.name).get((0, PIN))
    settings = declared(
        campaign.files.folder,
        options,
        begun=begun,
        mapping=campaign.files.mapping(0),
        pinned=pinned,
    )
    if pinned is None:
        campaign.ledger.pin(campaign.name, 0, {PIN: _lasting(settings)}, by=campaign.by)
    return settings


def _lasting(settings: ServingSettings) -> str:
    text = codec.encode([getattr(settings, name) for name in LASTING])
    return hashlib.sha256(text.encode()).hexdigest()


def declared(
    folder: Path,
    options: dict[str, Any],
    *,
    begun: bool,
    mapping: LogMapping | None = None,
    pinned: str | None = None,
) -> ServingSettings:
    """The settings of a campaign: as declared before, changed by the options of now.

    Args:
        folder: of the campaign.
        options: settings by name, those that change.
        begun: whether decisions were made; what decides their rewards then stays as it is.
        mapping: of the campaign's logs. It declares the range of rewards and, where it has a
            window, until when they are complete; else `wait` declares that.
        pinned: SHA-256 of what decides rewards, as the ledger has it.
    """
    window = None if mapping is None else mapping.window
    require(
        window is None or options.get("wait", window) == window,
        "rewards count within the window that the campaign's mapping declares",
        found=f"--wait {options.get('wait')}, window {window or 0:g} s",
        cure="leave --wait out",
    )
    options = options if window is None else {**options, "wait": float(window)}
    path = folder / FILE
    before = remembered(folder)
    for name in LASTING if begun and before is not None else ():
        require(
            name not in options or options[name] == getattr(before, name),
            f"{name.replace('_', ' ')} is declared once: it decides what decisions earned",
            found=f"{options.get(name)}, declared was {getattr(before, name)}",
            cure="leave it out, or begin a new campaign",
        )
    settings = replace(before or ServingSettings(), **options)
    if mapping is not None and (before is None or "default_reward" in options):
        _require_in_range(settings.default_reward, mapping)
    require(
        pinned in (None, _lasting(settings)),
        "what decides the rewards of decisions is declared once, when a campaign is first served",
        found=f"wait {settings.wait:g} s, default reward {settings.default_reward:g}, combine "
        f"{settings.combine} in {path}; the ledger has others",
        cure=f"restore {FILE} from a copy, or begin a new campaign",
    )
    if settings != before:
        write_file(path, codec.encode(settings, indent=1).encode())
    return settings


def remembered(folder: Path) -> ServingSettings | None:
    """What was declared when the campaign was last served; None if it never was.

    Args:
        folder: of the campaign.
    """
    path = folder / FILE
    return _read(path) if path.exists() else None


def asked_share(settings: ServingSettings, before: ServingSettings | None) -> float | None:
    """The share that is asked for at the start; None leaves it as it was turned live.

    The same option as at the last start asks for nothing: a restart by a supervisor must not undo
    what a person turned meanwhile.

    Args:
        settings: of now.
        before: of the last start; None if there was none.
    """
    if settings.ramp or (before is not None and before.holdout == settings.holdout):
        return None
    return 1 - settings.holdout


def _require_in_range(default: float, mapping: LogMapping) -> None:
    """Refuse a default reward that no decision can have."""
    used = default + mapping.shift
    require(
        used >= 0 and (used <= mapping.r_max or mapping.cap is not None),
        f"the default reward must lie in [0, {mapping.r_max:g}], as rewards do"
        + (f", after the mapping's shift of {mapping.shift:g}" if mapping.shift else ""),
        found=f"--default-reward {default:g}",
        cure="declare what a decision without a reward earns, in the units of the logs",
    )


def require_store(campaign: Campaign, address: str) -> None:
    """Refuse to begin an empty store where the campaign was served before.

    Args:
        campaign: which.
        address: of its store.
    """
    served = (0, PIN) in campaign.ledger.pins(campaign.name)
    require(
        "://" in address or Path(address).exists() or not served,
        "the store of decisions of a campaign that was served must be there",
        found=f"no {address}",
        cure="restore the file from a copy; to begin without the decisions of before, create an "
        "empty file of that name",
        error=FileError,
    )


def store_address(campaign: Campaign, store: str | None) -> str:
    """Where a campaign's decisions are: a file among its own, or another address."""
    return str(campaign.files.folder / STORE) if store is None else store


def _read(path: Path) -> ServingSettings:
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise FileError(
            "what was declared for serving must be readable",
            found=f"{path}: {problem.strerror}",
            cure="restore the file from a copy",
        ) from problem
    return codec.decode(text, ServingSettings, what=f"what was declared for serving in {path}")
