"""`depsue plan` as a user runs it: files in, a table, a plot and a page out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from markupsafe import escape
from typer.testing import CliRunner, Result

import depsue
from depsue import rng
from depsue.campaigns import create
from depsue.cli.main import app
from depsue.errors import DepsueError


class Files(NamedTuple):
    """Logs and items on disk, and pi0's folder."""

    logs: Path
    items: Path
    pi0: Path

    @property
    def rich(self) -> "Files":
        """Logs with further columns, and items without features, which are quickly planned for."""
        return self._replace(
            logs=self.logs.with_name("rich.parquet"), items=self.items.with_name("bare.csv")
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("files")
    settings = depsue.SyntheticSettings(users=60, supported=16, novel=4, d=3, spread=1.5)
    world = depsue.synthetic_world(settings, seed=2)
    logs = world.deploy(world.logging_policy, 8000, round=0)
    contexts = logs.contexts[logs.context]
    items, features = world.catalogue, np.asarray(world.catalogue.features)
    frame = pl.DataFrame(
        {
            "action": items.ids[logs.action],
            "reward": logs.reward,
            "propensity": logs.propensity,
            **{f"x{k}": contexts[:, k] for k in range(3)},
        }
    )
    frame.write_parquet(folder / "logs.parquet")
    frame.with_columns(
        revenue=logs.reward * (1 + logs.action % 3),
        country=np.where(contexts[:, 0] > 0, "SE", "NO"),
        young=(contexts[:, 1] > 0).astype(int),
    ).write_parquet(folder / "rich.parquet")
    catalogue = pl.DataFrame({"id": items.ids, "novel": items.novel})
    catalogue.write_csv(folder / "bare.csv")
    catalogue.with_columns(**{f"e{k}": features[:, k] for k in range(3)}).write_csv(
        folder / "items.csv"
    )
    depsue.save(world.logging_policy, folder / "pi0")
    return Files(folder / "logs.parquet", folder / "items.csv", folder / "pi0")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["plan", *(str(one) for one in arguments)])


def planned(files: Files, out: Path, *options: object) -> str:
    found = run(files.logs, files.items, "--out", out, "--quiet", *options)
    assert found.exit_code == 0, found.output
    return found.output


def test_a_plan_with_pi0(files: Files, tmp_path: Path) -> None:
    output = planned(files, tmp_path / "p", "--logging-policy", files.pi0, "--rows-for", 0.1)
    for words in ("Likely to be certified", "Pick: novelty", "10x", "Assumed", "10.0%: about"):
        assert words in output
    twin = json.loads((tmp_path / "p" / "plan.json").read_text())
    found = twin["plan"]
    assert f"{found['pick']['novelty']:.1%}" in output
    assert found["enough"] and found["pick"]["novelty"] > found["certain"] == 0.05
    page = (tmp_path / "p" / "plan.html").read_text()
    assert page.count("<svg") == 1 and "<script" not in page and found["why"] in page
    shown = [twin["page"]["pick"], twin["page"]["note"], *twin["page"]["headings"]]
    shown += [cell for cells in twin["page"]["cells"] for cell in cells]
    shown += [said for _, sentences in twin["page"]["sections"] for said in sentences]
    assert all(str(escape(words)) in page for words in shown)
    assert (tmp_path / "p" / "frontier.png").stat().st_size > 5000
    assert (tmp_path / "p" / "frontier.svg").read_text().startswith("<svg")
    assert "frontier.png" in output


def test_the_certifying_rewards_do_not_change_a_byte(files: Files, tmp_path: Path) -> None:
    frame = pl.read_parquet(files.logs)
    catalogue = depsue.Catalogue.from_frame(pl.read_csv(files.items))
    logs = depsue.LoggedData.from_frame(
        frame.with_row_index("row"), catalogue, r_max=1.0, context=["x0"], columns=["row"]
    )
    registration = depsue.Reads(secret=rng.secret(0, "plan")).register(logs)
    rows = depsue.three_folds(logs, registration).certify.columns["row"].astype(int)
    reward = frame["reward"].to_numpy().copy()
    reward[rows] = 1 - reward[rows]
    frame.with_columns(pl.Series("reward", reward)).write_parquet(tmp_path / "spoiled.parquet")
    few = files._replace(items=files.rich.items)
    out = tmp_path / "same"
    kept = []
    for one in (few, few._replace(logs=tmp_path / "spoiled.parquet")):
        text = planned(one, out)
        kept.append((text, *(path.read_bytes() for path in sorted(out.iterdir()))))
    assert kept[0] == kept[1]


def test_a_plan_of_a_campaigns_rows_reads_none_that_certify(files: Files, tmp_path: Path) -> None:
    """Although plan's own rule for these columns would leave out the times that name the rows."""
    frame = pl.read_parquet(files.logs).with_columns(time=pl.int_range(pl.len()) * 1.5)
    frame.write_parquet(tmp_path / "logs.parquet")
    few = files.rich._replace(logs=tmp_path / "logs.parquet")
    pi0 = depsue.load(files.pi0)
    campaign = create("spring", few.logs, few.items, pi0=pi0, by="ana", home=tmp_path / "c")
    assert campaign.ledger.registration("spring", 0).kind == "time"
    logs = campaign.logs(0)
    folds = depsue.three_folds(logs, campaign.ledger.registration("spring", 0))
    rows = np.isin(np.asarray(logs.time), np.asarray(folds.certify.time))
    spoiled = frame.with_columns(
        reward=pl.when(pl.Series(rows)).then(1 - pl.col("reward")).otherwise("reward")
    )
    out, kept, texts = tmp_path / "same", [], []
    for table in (frame, spoiled):
        table.write_parquet(few.logs)
        texts.append(planned(few, out, "--home", tmp_path / "c"))
        kept.append([path.read_bytes() for path in sorted(out.iterdir())])
    assert texts[0] == texts[1] and kept[0] == kept[1]
    assert "no ledger knows" not in texts[0]
    assert "read as campaign 'spring' reads them" in texts[0].replace("\n", " ")
    found = run(few.logs, few.items, "--home", tmp_path / "c", "--context", "x0", "--out", out)
    assert found.exit_code != 0 and "--mapping" in str(found.exception)


NAMES = {"action": "item_id", "reward": "click", "propensity": "pscore"}


def test_every_layout_gives_the_same_plan(files: Files, tmp_path: Path) -> None:
    frame, folder = pl.read_parquet(files.logs).rename(NAMES), tmp_path / "logs"
    folder.mkdir()
    frame[:3000].write_csv(folder / "a.csv")
    frame[3000:].write_csv(folder / "b.csv")
    columns = "".join(f'{role} = "{name}"\n' for role, name in NAMES.items())
    declared = f'r_max = 1.0\n[columns]\n{columns}[contexts]\nnumeric = ["x0", "x1", "x2"]\n'
    (tmp_path / "m.toml").write_text(declared + "[reward]\ncap = 1.0\n")
    found, outputs = [], []
    for logs, *options in (
        (files.logs,),
        (folder, "--mapping", tmp_path / "m.toml"),
        (folder / "*.csv",),
        (folder, *(word for role, name in NAMES.items() for word in (f"--{role}", name))),
    ):
        few = files.rich._replace(logs=Path(str(logs)))
        outputs.append(planned(few, tmp_path / "p", *options))
        found.append(json.loads((tmp_path / "p" / "plan.json").read_text()))
    plans = [one["plan"] for one in found]
    assumed = [one.pop("assumptions") for one in plans]
    declarations = [one.pop("declared") for one in plans]
    assert [len(sentences) for sentences in declarations] == [0, 1, 0, 0]
    assert plans[0] == plans[1] == plans[2] == plans[3]
    capped = "rewards are min(click, 1): floor, bound and value are in this reward"
    assert assumed[1] == [*assumed[0], f"{capped}, not in click itself"]
    assert capped in " ".join(outputs[1].split()) and assumed[2] == assumed[3] == assumed[0]
    guessed = "guessed from its name: action is the column 'item_id'"
    assert [guessed in one["notes"] for one in found] == [False, False, True, False]
    assert guessed in outputs[2]


def test_from_check_to_plan_on_the_open_bandit_layout(tmp_path: Path) -> None:
    draw, n = np.random.default_rng(0), 3000
    pl.DataFrame(
        {
            "": np.arange(n),
            "timestamp": ["2019-11-24 00:00:34.760768+00:00"] * n,
            "item_id": draw.integers(0, 4, n),
            "position": np.arange(n) % 3 + 1,
            "click": draw.integers(0, 2, n),
            "propensity_score": np.full(n, 0.25),
            "user_feature_0": draw.choice(["81ce", "a3b7"], n),
        }
    ).write_csv(tmp_path / "all.csv")
    pl.DataFrame({"item_id": [0, 1, 2, 3, 4]}).write_csv(tmp_path / "items.csv")
    logs, items, path = tmp_path / "all.csv", tmp_path / "items.csv", tmp_path / "m.toml"
    slates = run(logs, items, "--quiet", "--out", tmp_path)
    assert "slates are not supported yet" in str(slates.exception)
    assert "--position 1 --write-mapping m.toml" in str(slates.exception)
    arguments = ["check", logs, items, "--position", 1, "--write-mapping", path]
    checked = CliRunner().invoke(app, [str(one) for one in arguments])
    assert checked.exit_code == 0, checked.output
    files = Files(logs, items, tmp_path)
    output = planned(files, tmp_path / "p", "--mapping", path)
    assert "only rows with position = 1 are used" in output
    assert json.loads((tmp_path / "p" / "plan.json").read_text())["plan"]["rows"] == n // 3


def test_rows_of_new_items_that_were_dropped(tmp_path: Path) -> None:
    """Of 16 equally likely items 4 are declared new by dropping their rows."""
    draw, n = np.random.default_rng(1), 6000
    logs = pl.DataFrame(
        {
            "action": draw.integers(0, 16, n),
            "reward": draw.integers(0, 2, n),
            "propensity": np.full(n, 1 / 16),
        }
    )
    logs.filter(pl.col("action") < 12).write_csv(tmp_path / "logs.csv")
    pl.DataFrame({"item_id": range(16)}).write_csv(tmp_path / "items.csv")
    files = Files(tmp_path / "logs.csv", tmp_path / "items.csv", tmp_path)
    refused = run(files.logs, files.items, "--quiet", "--out", tmp_path / "p")
    assert "the mean of m/p must be at most 1" in str(refused.exception)
    assert "say what share of decisions was kept: --kept" in str(refused.exception)
    output = planned(files, tmp_path / "p", "--kept", 0.75)
    assert "in every context the same share of decisions, 0.75, was kept" in output
    path = tmp_path / "m.toml"
    arguments = ["check", files.logs, "--kept", 0.75, "--write-mapping", path]
    checked = CliRunner().invoke(app, [str(one) for one in arguments])
    assert checked.exit_code == 0, checked.output
    assert "4 of the items never occur" in planned(files, tmp_path / "p", "--mapping", path)


PROMISES = """
[[promise]]
name = "clicks"
floor = 0.9

[[promise]]
name = "money"
floor_value = 0.2
reward = "revenue"
r_max = 3.0

[[promise]]
name = "Sweden"
floor = 0.8
segment = { column = "country", value = "SE" }

[[promise]]
name = "the young"
floor = 0.8
segment = { column = "young", value = 1 }
"""


def test_several_promises(files: Files, tmp_path: Path) -> None:
    (tmp_path / "promises.toml").write_text(PROMISES)
    options = ("--promises", tmp_path / "promises.toml", "--logging-policy", files.pi0)
    output = planned(files.rich, tmp_path / "p", *options, "--context", "x*")
    for words in ("4 promises", "binds", "The promises at the pick", "the young"):
        assert words in output
    found = json.loads((tmp_path / "p" / "plan.json").read_text())
    names = ["clicks", "money", "Sweden", "the young"]
    assert [one["name"] for one in found["plan"]["promises"]] == names
    assert found["plan"]["pick"]["binds"] in names
    assert found["plan"]["certain"] == 0  # one of the floors is absolute
    floors = [promise["floor"]["absolute"] for promise in found["plan"]["settings"]["promises"]]
    assert floors == [None, 0.2, None, None]
    page = (tmp_path / "p" / "plan.html").read_text()
    assert "The promises at the pick" in page and "revenue lies between 0 and 3" in page


def test_rewards_of_promises_are_no_features(files: Files, tmp_path: Path) -> None:
    (tmp_path / "promises.toml").write_text(PROMISES)
    frame = pl.read_parquet(files.rich.logs)
    frame.with_columns(revenue=pl.lit(0.5)).write_parquet(tmp_path / "flat.parquet")
    models = []
    for one in (files.rich, files.rich._replace(logs=tmp_path / "flat.parquet")):
        planned(one, tmp_path / "p", "--promises", tmp_path / "promises.toml")
        models.append(json.loads((tmp_path / "p" / "plan.json").read_text())["plan"]["model"])
    assert models[0] == models[1]


def test_a_floor_as_a_value(files: Files, tmp_path: Path) -> None:
    few = files._replace(items=files.rich.items)
    output = planned(few, tmp_path / "p", "--floor-value", 0.1, "--logging-policy", files.pi0)
    assert "floor 0.1" in output
    found = json.loads((tmp_path / "p" / "plan.json").read_text())["plan"]
    assert found["certain"] == 0 and found["pick"]["novelty"] > 0.05
    impossible = planned(few, tmp_path / "p", "--floor-value", 0.9)
    assert "pi0 itself is not likely to be certified" in impossible
    assert "0.09" in run("--rows-for", 0.1, "--reward-rate", 0.1, "--floor-value", 0.09).output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[promise]\n", "must be a TOML file"),
        ("", "tables [[promise]]"),
        ("promise = 3\n", "tables [[promise]]"),
        ('[[promise]]\nname = "a"\n', "a floor or a floor_value"),
        ('[[promise]]\nname = "a"\nfloor = 0.9\nfloor_value = 0.1\n', "a floor or a floor_value"),
        ('[[promise]]\nname = "a"\nfloor = 0.9\nflor = 0.9\n', "may have reward"),
        ('[[promise]]\nname = "a"\nfloor = "high"\n', "a floor must be a positive number"),
        ('[[promise]]\nname = "a"\nfloor = 0.9\nreward = "revenue"\n', "declares its largest"),
        ('[[promise]]\nname = "a"\nfloor = 0.9\nsegment = "SE"\n', "a column and a value"),
        (
            '[[promise]]\nname = "a"\nfloor = 0.9\nreward = "fame"\nr_max = 1.0\n',
            "'fame'",
        ),
        (
            '[[promise]]\nname = "a"\nfloor = 0.9\n'
            'segment = { column = "country", value = "DK" }\n',
            "a segment needs rows",
        ),
        (
            '[[promise]]\nname = "a"\nfloor = 0.9\n[[promise]]\nname = "a"\nfloor = 0.9\n',
            "names of their own",
        ),
    ],
)
def test_bad_promises_are_errors_with_a_rule(
    files: Files, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "promises.toml"
    path.write_text(text)
    logs, items, _ = files.rich
    found = run(logs, items, "--out", tmp_path, "--quiet", "--promises", path)
    assert isinstance(found.exception, DepsueError), found.output
    assert words in str(found.exception)


def test_items_without_features_and_without_the_column_novel(files: Files, tmp_path: Path) -> None:
    pl.read_csv(files.items).select("id").write_csv(tmp_path / "bare.csv")
    output = planned(files._replace(items=tmp_path / "bare.csv"), tmp_path / "p")
    assert "4 of the items never occur in the logs: taken as novel" in output
    assert "nothing is known of the new ones" in output
    assert "pi0 cannot be called" in output


def test_rows_that_a_wish_needs_before_there_are_logs() -> None:
    output = run("--rows-for", 0.1, "--reward-rate", 0.05).output
    assert "For a novelty of 10.0%, about" in output
    assert "spread 0.15" in output and "1.35 times as much" in output
    assert "no rows are needed" in run("--rows-for", 0.05, "--reward-rate", 0.05).output
    assert (
        "no number of rows"
        in run("--rows-for", 0.5, "--reward-rate", 0.05, "--spread", 0.05).output
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--floor", "1.2"], "floor must lie in"),
        (["--floor", "2"], "floor must lie in"),
        (["--floor", "0.9", "--floor-value", "0.1"], "floors come from one of"),
        (["--floor-value", "1.5"], "must lie below r_max"),
        (["--promises", "gone.toml"], "must be a TOML file"),
        (["--delta", "0"], "delta must lie in"),
        (["--objective", "fame"], "objective must be"),
        (["--rows-for", "0.9"], "wished novelty must lie in"),
        (["--reward", "clicks"], "'clicks'"),
        (["--context", "zip"], "'zip'"),
        (["--unit", "who"], "'who'"),
        (["--mapping", "gone.toml"], "a mapping must be a TOML file"),
        (["--id", "sku"], "'sku'"),
        (["--novel", "3"], "not from both"),
        (["--r-max", "0.5"], "reward"),
        (["--campaign", " "], "campaign needs a name"),
        (["--reward-rate", "0.1"], "planning without logs"),
        (["--logging-policy", "nowhere"], "nowhere"),
    ],
)
def test_bad_options_are_errors_with_a_rule(
    files: Files, tmp_path: Path, options: list[str], words: str
) -> None:
    found = run(files.logs, files.items, "--out", tmp_path / "p", "--quiet", *options)
    assert isinstance(found.exception, DepsueError), found.output
    assert words in str(found.exception)


def test_a_policy_over_other_contexts_is_refused(files: Files, tmp_path: Path) -> None:
    options = ("--logging-policy", files.pi0, "--context", "x0,x1")
    found = run(files.logs, files.items, "--out", tmp_path, "--quiet", *options)
    assert isinstance(found.exception, DepsueError), found.output
    assert "answers only for contexts with the columns that it was made for" in str(found.exception)


def test_a_policy_that_did_not_log_the_rows_is_refused(files: Files, tmp_path: Path) -> None:
    novel = pl.read_csv(files.items)["novel"].to_numpy()
    depsue.save(depsue.Uniform(~novel), tmp_path / "other")
    found = run(files.logs, files.items, "--out", tmp_path, "--logging-policy", tmp_path / "other")
    assert "propensities must be" in str(found.exception)


def test_no_traceback_on_the_terminal(tmp_path: Path) -> None:
    for arguments in ([], [str(tmp_path), "gone.csv"]):
        command = [sys.executable, "-m", "depsue", "plan", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("depsue: ") and "Traceback" not in done.stderr


def test_help_lists_the_command() -> None:
    assert " plan " in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"}).output
