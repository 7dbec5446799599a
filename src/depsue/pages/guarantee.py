"""What the guarantee says, what it does not say, and what it rests on."""

from __future__ import annotations

from depsue.pages.story import Story
from depsue.pages.words import percent
from depsue.plural import counted, plural


def says(story: Story) -> list[str]:
    """What the guarantee says."""
    campaign, explore = story.campaign, story.campaign.settings.explore
    k, delta = campaign.rounds, percent(explore.delta)
    if explore.per == "campaign":
        each = "its one verdict" if k == 1 else f"each of up to {k} verdicts"
        rate = (
            f"Over the whole campaign, the procedure errs at most {delta} of the time: {each} is "
            f"tested at {percent(explore.delta_of_deployment)}."
        )
    else:
        most = percent(min(k * explore.delta, 1.0))
        rate = f"For each deployment, the procedure errs at most {delta} of the time"
        rate += f"; over {k} deployments at most {most}." if k > 1 else "."
    what = (
        "The promise: every certified deployment by itself is worth at least the floor."
        if explore.safety == "each"
        else "The promise: all deployments so far, taken together, are worth at least the floor. A "
        "later one may lie below it, by what earlier ones earned above."
    )
    again = (
        f"Further attempts were declared: the j-th on the same rows is tested at "
        f"{percent(explore.delta_of_deployment)} x 2^-j."
        if campaign.settings.retries
        else "A test that failed cannot be repeated on the same rows until it passes."
    )
    reads = [one.attempt for one in story.tried if one.attempt is not None]
    found = [
        what,
        f"{rate} To err is to pass a policy that breaks it.",
        "Until a new item has been shown, it counts as worth nothing; so the promise does not "
        "depend on what unseen items are worth.",
        f"Rows that certify are kept from learning until one verdict has read them. {again} "
        f"Counted in this campaign: {counted(len(reads), 'read')}.",
    ]
    if len(explore.promises) > 1:
        found.append("All promises must pass at once; delta is split among them.")
    if explore.certain > 0:
        found.append(
            f"New items in {percent(explore.certain)} of decisions beside pi0 need no certificate: "
            "the rest of the decisions keeps the floor by itself, as rewards are not negative."
        )
    return found


def says_not(story: Story) -> list[str]:
    """What the guarantee does not say."""
    explore = story.campaign.settings.explore
    level = percent(1 - explore.delta)
    found = [
        f"That a policy which passed is safe with probability {level}. Its value is above the "
        f"floor or not; it is the procedure that is right at least {level} of the time.",
        "That a policy which failed is unsafe: the rows may have been too few to tell.",
        "Anything about anticipated values, which come from a model, or about single items, users "
        "and groups that no promise names.",
        "Anything at all if what it rests on does not hold: see below.",
    ]
    if any(one.floor.ratio is None or one.floor.ratio > 1 for one in explore.promises):
        found.append(
            "That pi0 itself keeps a floor which is not a share of its own value, or is more than "
            "all of it: falling back to pi0 may break the promise."
        )
    return found


def rests_on(story: Story) -> list[tuple[str, str]]:
    """Every assumption of the certificates, and of which rounds."""
    found: dict[str, list[int]] = {}
    for one in story.tried:
        for words in () if one.certificate is None else one.certificate.assumptions:
            rounds = found.setdefault(words, [])
            if one.round not in rounds:
                rounds.append(one.round)
    return [(words, _rounds(rounds)) for words, rounds in found.items()]


def _rounds(rounds: list[int]) -> str:
    return f"{plural(len(rounds), 'round')} {', '.join(str(k) for k in rounds)}"
