"""Traffic for the demo's shop, so that there is something to see on the dashboard.

    depsue demo
    depsue serve demo --home demo-report/shop/campaigns --no-auth --wait 30
    python examples/shop_traffic.py --seconds 120 [--broken 0.2]

Users of the shop come, are shown an item, and buy or do not, as the simulated shop knows; rewards
come a moment later, some twice, some never. With --broken, what the policy decides earns that
share of what it should: at 0.2 the monitor stops the policy within a minute, and with a share
nearer to 1, or after healthy traffic, it needs longer.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from depsue.client import Client
from depsue.demo.demo import demo_world


def main() -> None:
    """Send traffic until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8470")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--per-second", type=int, default=200)
    parser.add_argument("--broken", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the demo")
    options = parser.parse_args()
    world = demo_world(options.seed)
    place = {id: k for k, id in enumerate(world.catalogue.ids.tolist())}
    rng = np.random.default_rng()
    token = os.environ.get("DEPSUE_TOKEN")
    client = Client(options.url, decide_token=token, reward_token=token)
    began, shown, bought = time.time(), 0, 0
    while time.time() - began < options.seconds:
        users = rng.integers(0, len(world.contexts), options.per_second)
        asked = [
            {"context": {f"x{j}": float(x) for j, x in enumerate(world.contexts[user])}}
            for user in users
        ]
        made = client.decide_batch(asked)
        rewards = []
        for user, decision in zip(users, made, strict=True):
            share = options.broken if decision.decided_by == "policy" else 1.0
            if rng.random() < share * world.q[user, place[decision.action]]:
                rewards += [{"decision": decision.decision, "value": 1.0}] * (
                    1 + (rng.random() < 0.1)
                )
        if rewards:
            client.reward_batch(rewards)
        shown, bought = shown + len(made), bought + len(rewards)
        print(f"\r{shown:,} decisions, {bought:,} rewards sent", end="", flush=True)
        time.sleep(max(0.0, began + shown / options.per_second - time.time()))
    print()


if __name__ == "__main__":
    main()
