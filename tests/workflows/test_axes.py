from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launchscope.errors import UsageError
from launchscope.model import Target
from launchscope.workflows.axes import Axis, axes_of, combinations, parse_parameters
from launchscope.workflows.script_flags import ScriptOptions, options_of

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int)
parser.add_argument("--width", type=int)
"""


def options(folder: Path, source: str, **files: str) -> ScriptOptions:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.write_text(text)
    (folder / "train.py").write_text(source)
    return options_of(Target("script", str(folder / "train.py")))


def axes(
    folder: Path,
    source: str,
    sizes: str | None = "8,32",
    *params: str,
    flag: str | None = None,
    args: tuple[str, ...] = (),
) -> tuple[Axis, ...]:
    return axes_of(
        Target("script", "train.py", args),
        options(folder, source),
        batch_sizes=None if sizes is None else sizes.split(","),
        parameters=parse_parameters(params),
        batch_flag=flag,
    )


@pytest.mark.parametrize(
    ("source", "flag"),
    [
        (ARGPARSE, "--batch-size"),
        ('import argparse\nargparse.ArgumentParser().add_argument("--batch_size")', "--batch_size"),
        ('import argparse\nargparse.ArgumentParser().add_argument("--bs")', "--bs"),
        ('import click\n@click.command()\n@click.option("--batch-size")\ndef f(batch_size): ...',
         "--batch-size"),
        ("import typer\ndef main(batch_size: int = 8): ...\ntyper.run(main)", "--batch-size"),
        ("import fire\ndef main(batch_size=8): ...\nfire.Fire(main)", "--batch_size"),
        ("import argparse\np = argparse.ArgumentParser()\n"
         'p.add_argument("--per_device_train_batch_size")', "--per_device_train_batch_size"),
    ],
    ids=["argparse", "underscore", "bs", "click", "typer", "fire", "hf"],
)  # fmt: skip
def test_the_scripts_own_flag_is_found(tmp_path: Path, source: str, flag: str) -> None:
    assert axes(tmp_path, source)[0].flag == flag


def declares(*options: str) -> str:
    calls = "\n".join(f"p.add_argument({option})" for option in options)
    return f"import argparse\np = argparse.ArgumentParser()\n{calls}"


NANOGPT = """
batch_size = 12 # if gradient_accumulation_steps > 1, this is the micro-batch size
eval_iters = 200
exec(open('configurator.py').read())
"""
OMEGACONF = """
from omegaconf import OmegaConf
base = OmegaConf.create({"data": {"batch_size": 8, "root": "x"}, "lr": 1e-3})
cfg = OmegaConf.merge(base, OmegaConf.from_cli())
loader = make(cfg.data.batch_size, cfg.lr)
"""
HYDRA = """
import hydra
@hydra.main(config_name="config")
def main(cfg):
    make(batch_size=cfg["batch_size"], lr=cfg.optimizer.lr)
"""


@pytest.mark.parametrize(
    ("source", "flag"),
    [
        *((declares(f"'{flag}'"), flag) for flag in (
            "--batchSize", "--bs", "-b", "--train_batch_size", "--batch", "--data.batch_size",
            "--per_device_train_batch_size", "--BATCH_SIZE", "--trainBatchSize", "-bs",
            "--eval-batch-size", "--micro-batch-size", "--batch_sz",
        )),
        (declares("'-b', '--batchSize'"), "--batchSize"),
        (declares("'--batch-size'", "'--test-batch-size'"), "--batch-size"),
        (declares("'--batch-size'", "'-b'", "'--batch-norm'"), "--batch-size"),
        (declares("'--train_batch_size'", "'--eval_batch_size'"), "--train_batch_size"),
        ("from transformers import HfArgumentParser, TrainingArguments",
         "--per_device_train_batch_size"),
        (NANOGPT, "--batch_size="),
        (OMEGACONF, "data.batch_size="),
        (HYDRA, "batch_size="),
    ],
)  # fmt: skip
def test_flags_and_settings_that_scripts_really_have_are_found(
    tmp_path: Path, source: str, flag: str
) -> None:
    assert axes(tmp_path, source)[0].flag == flag


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (declares("'--batch-size'", "'--micro-batch-size'"), "--batch-size and --micro-batch-size"),
        (declares("'--batch'", "'--bs'"), "--batch and --bs"),
        (OMEGACONF + "make(cfg.batch_size)", "batch_size= and data.batch_size="),
    ],
)
def test_of_two_candidates_both_are_named(tmp_path: Path, source: str, names: str) -> None:
    with pytest.raises(UsageError, match="2 options that may be its batch size") as caught:
        axes(tmp_path, source)
    assert names in str(caught.value)
    chosen = names.split()[-1]
    assert caught.value.hint == f"--batch-flag {names.split()[0]} takes this one"
    assert axes(tmp_path, source, flag=chosen)[0].flag == chosen


def test_a_setting_that_was_typed_is_replaced_where_it_stands(tmp_path: Path) -> None:
    for typed in ("data.batch_size=4", "--batch_size=4", "+train.batch_size=4"):
        target = Target("script", "train.py", ("lr=1", typed, "x"))
        found = combinations(axes(tmp_path, "", "8", args=target.args), target)
        assert found[0].target.args == ("lr=1", typed.replace("=4", "=8"), "x")
    (point,) = combinations(axes(tmp_path, HYDRA, "8"), Target("script", "train.py", ("lr=1",)))
    assert point.target.args == ("lr=1", "batch_size=8")
    assert axes(tmp_path, HYDRA, None, "optimizer.lr=1,2")[0].flag == "optimizer.lr="


def test_a_flag_in_a_module_that_the_script_imports_is_found(tmp_path: Path) -> None:
    found = options(tmp_path, "from settings import parse\nparse()", settings=ARGPARSE)
    assert found.spelled("batch-size") == "--batch-size"


def test_a_script_whose_reading_gives_a_warning_is_read_without_a_word(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    source = ARGPARSE + 'title = "\\\x1b]0;evil\x07"\n'
    assert axes(tmp_path, source)[0].flag == "--batch-size"
    assert recwarn.list == []


def test_a_module_target_is_read_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trainer_of_mine").mkdir()
    (tmp_path / "trainer_of_mine" / "__init__.py").write_text("")
    (tmp_path / "trainer_of_mine" / "__main__.py").write_text(ARGPARSE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    found = options_of(Target("module", "trainer_of_mine"))
    assert found.spelled("batch-size") == "--batch-size"
    assert sys.path == before


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


def test_a_given_flag_is_passed_as_the_script_spells_it(tmp_path: Path) -> None:
    source = 'import argparse\nargparse.ArgumentParser().add_argument("--images_per_step")'
    assert axes(tmp_path, source, flag="images-per-step")[0].flag == "--images_per_step"


@pytest.mark.parametrize(
    "source",
    [
        "import sys\nprint(sys.argv)",
        "from absl import flags\nflags.DEFINE_integer('n', 8, 'n')",
        "from transformers import HfArgumentParser\nclass A:\n    n: int = 8",
    ],
)
def test_a_given_flag_is_trusted_where_options_cannot_be_read(tmp_path: Path, source: str) -> None:
    assert axes(tmp_path, source, flag="--n")[0].flag == "--n"


@pytest.mark.parametrize(
    ("sizes", "params", "flag", "message"),
    [
        ("8,x", (), None, "expected a whole number, 1 or more, not x"),
        ("8.5", (), None, "expected a whole number, 1 or more, not 8.5"),
        ("8,8", (), None, "8 is given twice"),
        ("0", (), None, "expected a whole number, 1 or more, not 0"),
        ("-4", (), None, "expected a whole number, 1 or more, not -4"),
        ("", (), None, "expected a whole number, 1 or more, not ''"),
        ("8,,9", (), None, "expected a whole number, 1 or more, not ''"),
        ("8", (), "--nope", "no option --nope"),
        (None, (), "--batch-size", "no effect without --batch-sizes"),
        (None, ("width",), None, "expected NAME=a,b"),
        (None, ("width=",), None, "expected NAME=a,b"),
        (None, ("width=1,1",), None, "1 is given twice"),
        (None, ("wdth=1,2",), None, "no option --wdth"),
        (None, ("width=1,2", "width=3"), None, "given twice"),
        ("8", ("batch_size=3",), None, "given twice"),
        (None, ("wi dth=1",), None, "is not a name"),
        (",".join(map(str, range(1, 40))), ("width=1,2",), None, "78 points are more than"),
    ],
)
def test_bad_input_is_one_sentence(
    tmp_path: Path, sizes: str | None, params: tuple[str, ...], flag: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        axes(tmp_path, ARGPARSE, sizes, *params, flag=flag)
    assert caught.value.exit_code == 2


def test_the_error_for_an_unknown_parameter_lists_the_options_and_the_alternative(
    tmp_path: Path,
) -> None:
    source = 'import argparse\nargparse.ArgumentParser().add_argument("--epochs")'
    with pytest.raises(UsageError, match="no option --zz") as caught:
        axes(tmp_path, source, None, "zz=1,2")
    assert (
        caught.value.hint
        == "it has --epochs. Or put {zz} into the arguments, where the value belongs"
    )


def test_a_script_without_a_flag_for_the_batch_size_is_refused(tmp_path: Path) -> None:
    source = 'import argparse\nargparse.ArgumentParser().add_argument("--epochs")'
    with pytest.raises(UsageError, match="every point would measure the same thing") as caught:
        axes(tmp_path, source)
    assert "it has --epochs" in (caught.value.hint or "")
    assert "{batch_size}" in (caught.value.hint or "")


def test_a_module_target_is_read_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "loud_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit(5)")
    (package / "__main__.py").write_text(ARGPARSE)
    (tmp_path / "loud_module.py").write_text(f"{ARGPARSE}\nraise SystemExit(5)")
    monkeypatch.chdir(tmp_path)
    for name in ("loud_package", "loud_package.__main__", "loud_module"):
        found = options_of(Target("module", name))
        assert found.spelled("batch-size") == "--batch-size"
        assert name not in sys.modules


def test_for_a_module_without_a_source_a_given_flag_is_trusted() -> None:
    target = Target("module", "no_such_module.at_all")
    with pytest.raises(UsageError) as caught:
        axes_of(target, options_of(target), batch_sizes=[8])
    assert "its source was not found" in str(caught.value.hint)
    (axis,) = axes_of(target, options_of(target), batch_sizes=[8], batch_flag="--bs")
    assert axis.flag == "--bs"


@pytest.mark.parametrize(
    "parameter",
    [
        'batch_size: int = typer.Option(8, "--bs")',
        'batch_size: Annotated[int, typer.Option("--bs")] = 8',
        '*, batch_size: int = typer.Option(8, "--bs")',
    ],
)
def test_the_name_in_a_typer_option_is_the_flag(tmp_path: Path, parameter: str) -> None:
    source = f"import typer\ndef main({parameter}, lr: float = 0.1): ...\ntyper.run(main)"
    assert options(tmp_path, source).flags == {"--bs", "--lr"}


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


@pytest.mark.parametrize("source", ["x = " + "-" * 200_000 + "1", "x = a" + ".a" * 30_000])
def test_a_script_that_is_nested_too_deep_has_no_known_options(tmp_path: Path, source: str) -> None:
    path = tmp_path / "deep.py"
    path.write_text(source)
    assert not options_of(Target("script", str(path))).flags
