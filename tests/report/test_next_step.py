"""The first next step of every report is the command that makes the change, where there is one."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.cli import main
from launchscope.model import Profile, StepCall, Target, Verdict
from launchscope.report import RenderOptions, render
from launchscope.report.document import Entries
from launchscope.report.documents.next_step import adapter, adopt_commands
from launchscope.report.documents.profile import document
from launchscope.rules import advise
from launchscope.rules.findings.changing_numbers import RULE
from tests.rules.profiles import blocked, gpu_bound, profile, rehearsal

ADOPT = "launchscope adopt train.py --epochs 1"


def targeted(*, world_size: int = 1, **changes: object) -> Profile:
    made = advise(profile())
    environment = dataclasses.replace(made.environment, world_size=world_size)
    target = dataclasses.replace(made.target, **changes)  # type: ignore[arg-type]
    return replace(made, target=target, environment=environment)


@pytest.mark.parametrize(
    ("value", "command"),
    [
        (targeted(), ADOPT),
        (
            targeted(name="my train.py", args=("--name", "a'b $x", "*")),
            "launchscope adopt 'my train.py' --name 'a'\"'\"'b $x' '*'",
        ),
        (targeted(kind="module", name="pkg.train"), "launchscope adopt -m pkg.train --epochs 1"),
        (
            targeted(python="/opt/my env/bin/python"),
            "launchscope adopt --python '/opt/my env/bin/python' train.py --epochs 1",
        ),
        (
            replace(targeted(), threshold_pct=2.5, expected_steps=300),
            "launchscope adopt --threshold 2.5% --expected-steps 300 train.py --epochs 1",
        ),
        (targeted(ranks=2, world_size=2), None),  # adopt changes the script of one process
        (targeted(kind="callable", name="train_step"), None),
        (targeted(name="-"), None),  # standard input
        (targeted(name="--write"), None),  # an edited file
        (replace(targeted(), mode="trace", target=Target("trace", "t.json")), None),
        (advise(gpu_bound()), None),
        (advise(rehearsal()), None),
    ],
)
def test_the_command_starts_what_was_measured(value: Profile, command: str | None) -> None:
    assert adopt_commands(value) == (() if command is None else (command,))
    if command is not None:
        words = shlex.split(command)
        assert tuple(words[len(words) - len(value.target.args) :]) == value.target.args
        assert words[-1 - len(value.target.args)] == value.target.name


@pytest.mark.parametrize("package", ["lightning", "transformers", "accelerate", "toytrainer"])
def test_the_adapter_is_named_in_place_of_the_command_where_a_trainer_runs_the_step(
    package: str,
) -> None:
    value = targeted()
    assert value.step is not None
    step = dataclasses.replace(value.step, calls=(StepCall("step", (), package),))
    value = replace(value, step=step)
    known = adapter(value)
    assert (known is None) == (package == "toytrainer")
    text = " ".join(str(render(value, "terminal", RenderOptions(brief=True))).split())
    assert ("the steps then run as graphs where they can" in text) == (known is not None)
    assert (ADOPT in text) == ("docs get-started" in text) == (known is None)
    assert adapter(replace(value, verdict=advise(gpu_bound()).verdict)) is None


def test_it_is_the_first_next_step_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(bytes(render(targeted(), "json")))  # type: ignore[arg-type]
    for words, before in (
        ([], "\nNext\n  "),
        (["-v"], "\nNext\n  "),
        (["-f", "markdown"], "\n## Next\n\n```sh\n"),
        (["-f", "html"], '<h2>What to do</h2>\n<p class="plain"><code>'),
    ):
        assert main(["report", str(path), *words]) == 0
        assert f"{before}{ADOPT}" in capsys.readouterr().out
    assert main(["report", str(path), "-q", "-o", str(tmp_path / "page.md")]) == 0
    assert f"```sh\n{ADOPT}\n```" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("make", [profile, blocked])
def test_steps_by_hand_are_named_as_such_beside_the_command(make: object) -> None:
    assert callable(make)
    value = advise(make())
    for brief in (True, False):
        text = str(render(value, "terminal", RenderOptions(brief=brief)))
        assert ("By hand:" in " ".join(text.split())) == bool(adopt_commands(value))


@pytest.mark.parametrize("bears", [False, True])
def test_a_finding_is_to_be_done_only_where_the_verdict_rests_on_it(bears: bool) -> None:
    made = gpu_bound()
    facts = replace(made.facts, scheduler_live=True, optimizer_classes=("SGD",))
    live = replace(made, facts=facts, replay=replace(made.replay, status="what_if"))
    finding = RULE.check(live)
    verdict = Verdict("stay_eager", "measured", "Stay eager.", because=("LS035",) * bears)
    live = replace(live, verdict=verdict, findings=tuple(finding))
    entries = {
        section.heading: [entry.code for entry in block.entries]
        for section in document(live, 5).sections
        for block in section.blocks
        if isinstance(block, Entries)
    }
    assert entries["What to do" if bears else "Keep in mind"] == ["LS035"]
    assert not {"What to change", "Keep in mind" if bears else "What to do"} & entries.keys()
    text = str(render(live, "terminal", RenderOptions(brief=True)))
    assert (finding[0].advice[:40] in text) == bears
    assert "LS035" in text
