from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.errors import UsageError
from launchscope.model import Target
from launchscope.workflows.axes import Axis, axes_of, combinations, parse_parameters

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int)
parser.add_argument("--width", type=int)
"""


def axes(
    folder: Path,
    source: str,
    sizes: str | None = "8,32",
    *params: str,
    flag: str | None = None,
    args: tuple[str, ...] = (),
) -> tuple[Axis, ...]:
    (folder / "train.py").write_text(source)
    return axes_of(
        Target("script", str(folder / "train.py"), args),
        batch_sizes=None if sizes is None else sizes.split(","),
        parameters=parse_parameters(params),
        batch_flag=flag,
    )


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        *((flag, flag) for flag in (
            "--batch-size", "--batch_size", "--bs", "-b", "--batchSize", "--data.batch_size",
            "--per_device_train_batch_size",
        )),
        ("-b --batchSize", "--batchSize"),
        ("--batch-size --test-batch-size --batch-norm", "--batch-size"),
        ("--train_batch_size --eval_batch_size", "--train_batch_size"),
    ],
)  # fmt: skip
def test_the_scripts_own_flag_is_found(tmp_path: Path, flags: str, chosen: str) -> None:
    source = "\n".join(f"parser.add_argument('{flag}')" for flag in flags.split())
    assert axes(tmp_path, source)[0].flag == chosen


def test_of_two_candidates_both_are_named(tmp_path: Path) -> None:
    source = "add('--batch'); add('--bs')"
    with pytest.raises(UsageError, match="2 options that may be its batch size") as caught:
        axes(tmp_path, source)
    assert "--batch and --bs" in str(caught.value)
    assert caught.value.hint == "--batch-flag --batch takes this one"
    assert axes(tmp_path, source, flag="--bs")[0].flag == "--bs"
    assert axes(tmp_path, source, flag="images")[0].flag == "--images"


def test_a_setting_that_was_typed_is_replaced_where_it_stands(tmp_path: Path) -> None:
    for typed in ("data.batch_size=4", "--batch_size=4", "+train.batch_size=4"):
        target = Target("script", "train.py", ("lr=1", typed, "x"))
        found = combinations(axes(tmp_path, "", "8", args=target.args), target)
        assert found[0].target.args == ("lr=1", typed.replace("=4", "=8"), "x")


def test_a_module_target_is_read_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "loud_package"
    package.mkdir()
    (package / "__main__.py").write_text(f"{ARGPARSE}\nraise SystemExit(5)")
    (tmp_path / "loud_module.py").write_text(f"{ARGPARSE}\nraise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    for name in ("loud_package", "loud_package.__main__", "loud_module"):
        (axis,) = axes_of(Target("module", name), batch_sizes=[8])
        assert axis.flag == "--batch-size"
    with pytest.raises(UsageError, match="no option that looks like a batch size"):
        axes_of(Target("module", "no_such_module"), batch_sizes=[8])


def test_each_size_follows_the_flag_and_is_in_the_environment(tmp_path: Path) -> None:
    target = Target("script", "train.py", ("--epochs", "1"))
    found = combinations(axes(tmp_path, ARGPARSE, "32,8"), target)
    assert [point.target.args for point in found] == [
        ("--epochs", "1", "--batch-size", "8"),
        ("--epochs", "1", "--batch-size", "32"),
    ]
    assert [point.environ for point in found] == [
        {"LAUNCHSCOPE_BATCH_SIZE": "8"},
        {"LAUNCHSCOPE_BATCH_SIZE": "32"},
    ]
    assert [point.batch_size for point in found] == [8, 32]


def test_a_placeholder_in_the_arguments_is_filled_and_nothing_appended(tmp_path: Path) -> None:
    args = ("--cfg", "data.batch={batch_size}", "w={width}")
    target = Target("script", "train.py", args)
    found = combinations(axes(tmp_path, "", "8", "width=64,128", args=args), target)
    assert [point.target.args for point in found] == [
        ("--cfg", "data.batch=8", "w=64"),
        ("--cfg", "data.batch=8", "w=128"),
    ]


def test_parameters_are_combined_with_the_last_varying_fastest(tmp_path: Path) -> None:
    made = combinations(
        axes(tmp_path, ARGPARSE, "8,32", "width=64,128"), Target("script", "train.py")
    )
    assert [tuple(point.parameters.values()) for point in made] == [
        ("8", "64"), ("8", "128"), ("32", "64"), ("32", "128"),
    ]  # fmt: skip


def test_a_script_that_reads_the_variable_needs_no_flag(tmp_path: Path) -> None:
    source = "import os\nn = int(os.environ.get('LAUNCHSCOPE_BATCH_SIZE', 8))"
    assert axes(tmp_path, source)[0].flag is None


@pytest.mark.parametrize(
    ("sizes", "params", "flag", "message"),
    [
        ("8,x", (), None, "expected a whole number, 1 or more, not x"),
        ("8,8", (), None, "8 is given twice"),
        ("", (), None, "expected a whole number, 1 or more, not ''"),
        (None, (), "--batch-size", "no effect without --batch-sizes"),
        (None, ("width",), None, "expected NAME=a,b"),
        (None, ("width=1,1",), None, "1 is given twice"),
        (None, ("wdth=1,2",), None, "no option --wdth"),
        (None, ("width=1,2", "width=3"), None, "given twice"),
        ("8", ("batch_size=3",), None, "given twice"),
        (",".join(map(str, range(1, 40))), ("width=1,2",), None, "78 points are more than"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, sizes: str | None, params: tuple[str, ...], flag: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        axes(tmp_path, ARGPARSE, sizes, *params, flag=flag)
    assert caught.value.exit_code == 2


def test_a_parameter_is_passed_as_the_script_spells_it(tmp_path: Path) -> None:
    (axis,) = axes(tmp_path, "add('--weight_decay')", None, "weight-decay=1,2")
    assert axis.flag == "--weight_decay"
    assert axes(tmp_path, "from settings import parse", None, "lr=1,2")[0].flag == "--lr"
    with pytest.raises(UsageError, match="no option --zz") as caught:
        axes(tmp_path, "add('--epochs')", None, "zz=1,2")
    assert caught.value.hint == "put {zz} into the arguments, where the value belongs"


def test_a_script_without_a_flag_for_the_batch_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="every point would measure the same thing") as caught:
        axes(tmp_path, "add('--epochs')")
    assert "{batch_size}" in (caught.value.hint or "")


def test_the_batch_size_given_as_a_parameter_is_the_batch_size(tmp_path: Path) -> None:
    found = axes(tmp_path, ARGPARSE, None, "batch-size=32,8")
    assert found == (Axis("batch_size", ("8", "32"), "--batch-size"),)
    for wrong in ("batch_size=8,x", "batch-size=0", "batch_size=4.5"):
        with pytest.raises(UsageError, match="--param batch_size: "):
            axes(tmp_path, ARGPARSE, None, wrong)


def test_a_value_that_looks_like_a_placeholder_is_not_replaced() -> None:
    target = Target("script", "train.py", ("--name={width}", "{batch_size}", "{other}"))
    found = (Axis("width", ("{batch_size}",)), Axis("batch_size", ("8",)))
    assert combinations(found, target)[0].target.args == ("--name={batch_size}", "8", "{other}")


def test_secrets_among_the_values_reach_the_script_and_no_report() -> None:
    target = Target("script", "train.py", ("--key={api_key}",))
    axes = (Axis("api_key", ("s3cret", "0ther-one")), Axis("width", ("64",)))
    found = combinations(axes, target)
    assert [point.target.args for point in found] == [("--key=s3cret",), ("--key=0ther-one",)]
    assert [point.name for point in found] == ["api_key *** 1, width 64", "api_key *** 2, width 64"]


def test_a_secret_that_is_the_only_value_needs_no_number() -> None:
    (point,) = combinations((Axis("note", ("hf_" + "a" * 20,)),), Target("script", "train.py"))
    assert point.parameters == {"note": "***"}
