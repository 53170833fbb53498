"""The recipe of a verdict: the script's own lines, names and shapes in a block that compiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launchscope.model import Facts, Profile, Replay, Shapes, StepInput, StepSource
from launchscope.rules.how import how_to
from tests.rules.profiles import profile

SOURCE = StepSource(
    file="train.py",
    first_line=41,
    last_line=44,
    code="loss = model(batch['ids'])\nloss.backward()\nopt_a.step()\nopt_b.step()",
    static_code="loss = model(static_ids)\nloss.backward()\nopt_a.step()\nopt_b.step()",
    before="batch = next(data)",
    loop="for step in range(9):",
    inputs=(
        StepInput("batch['ids']", "batch['ids']", "static_ids", (8, 128), "torch.int64"),
        StepInput("label", "label", "static_label", (8,), "torch.float32", constant=True),
    ),
    optimizers=(("opt_a", "AdamW"), ("opt_b", "AdamW")),
    results=("loss",),
    frozen=("temperature",),
)


def recipe(of: Profile) -> tuple[str, str]:
    """The numbered steps and the code."""
    how = how_to(of, "adopt")
    assert how is not None
    steps, _, code = how.partition("\n\n")
    return steps, code


def with_source(**changes: Any) -> Profile:
    return profile(facts={"step_source": replace(SOURCE, **changes)})


def test_the_block_holds_the_scripts_own_lines_and_compiles() -> None:
    steps, code = recipe(with_source())
    compile(code, "recipe", "exec")
    assert "def captured_step():  # train.py:41-44\n    loss = model(static_ids)" in code
    assert 'static_ids = torch.empty((8, 128), dtype=torch.int64, device="cuda")' in code
    assert "    batch = next(data)\n    static_ids.copy_(batch['ids'], non_blocking=True)" in code
    assert "The step is train.py:41-44." in steps


def test_inputs_are_named_with_shape_and_those_that_stay_are_not_copied() -> None:
    steps, code = recipe(with_source())
    assert "Copy `batch['ids']` (8x128 int64)" in steps
    assert "`label` stays the same tensor: nothing to copy." in steps
    assert "static_label" not in code


def test_optimizers_are_named_by_their_variables() -> None:
    steps, _ = recipe(with_source())
    assert "AdamW capturable=True (`opt_a` and `opt_b`)" in steps


def test_values_that_a_graph_freezes_are_named() -> None:
    assert "`temperature` is a plain Python value" in recipe(with_source())[0]
    assert "plain Python" not in recipe(with_source(frozen=()))[0]


def test_without_an_optimizer_no_line_speaks_of_one() -> None:
    _, code = recipe(profile(facts={"optimizer_classes": ()}))
    assert "optimizer" not in code
    assert "your own update" in code


def test_inference_that_was_not_captured_is_told_no_backward() -> None:
    base = profile(facts={"optimizer_classes": ()})
    assert base.step is not None
    _, code = recipe(
        replace(
            base,
            step=replace(base.step, scope="forward"),
            replay=replace(base.replay, status="skipped", scope="full_step"),
        )
    )
    assert "static_out = model(static_x)" in code
    assert "backward" not in code


def test_several_outputs_are_them() -> None:
    base = with_source(results=("logits", "cache"))
    assert base.step is not None
    steps, _ = recipe(replace(base, step=replace(base.step, scope="forward")))
    assert "copy them before the next replay" in steps


def test_two_optimizers_of_unknown_name_are_two() -> None:
    _, code = recipe(profile(facts={"optimizer_classes": ("Adam", "Adam")}))
    assert "optimizer_1.step()" in code
    assert "optimizer_2.zero_grad(set_to_none=True)" in code


def test_a_step_inside_a_librarys_loop_is_not_quoted() -> None:
    steps, code = recipe(with_source(code="trainer.train()", static_code="trainer.train()"))
    assert "The step runs in a library's loop" in steps
    assert "trainer.train()" not in code


def test_alternatives_are_told_with_when_each_fits() -> None:
    steps, _ = recipe(profile())
    assert 'torch.compile(model, mode="reduce-overhead")' in steps
    assert "make_graphed_callables" in steps


def test_ddp_warms_up_longer_in_the_block_as_well() -> None:
    base = with_source()
    _, code = recipe(replace(base, environment=replace(base.environment, world_size=2)))
    assert "if steps_done < 11:" in code


def test_inference_whose_replay_was_not_measured_gets_no_training_loop() -> None:
    base = profile(facts={"step_source": replace(SOURCE, code="out = model(batch['ids'])")})
    assert base.step is not None
    inference = replace(
        base,
        step=replace(base.step, scope="forward", period=("forward",)),
        replay=Replay("skipped", "the op stream changes from step to step", scope="full_step"),
    )
    steps, code = recipe(inference)
    assert "def captured_step()" in code
    assert "`loss` is the same tensor" in steps
    _, code = recipe(replace(inference, facts=Facts()))
    assert "static_out = model(static_x)" in code
    assert "backward" not in code


def test_an_input_that_is_differentiated_stays_a_leaf_and_gathers_no_gradient() -> None:
    entry = replace(SOURCE.inputs[0], dtype="torch.float32", requires_grad=True)
    _, code = recipe(with_source(inputs=(entry,)))
    assert 'dtype=torch.float32, device="cuda", requires_grad=True)' in code
    assert "    static_ids.grad = None\n    loss = model(static_ids)" in code
    assert "static_ids.detach().copy_(batch['ids'].detach(), non_blocking=True)" in code


def test_the_step_stands_as_deep_in_the_loop_as_it_did() -> None:
    _, code = recipe(with_source(before="with torch.no_grad():\n    batch = next(data)", depth=4))
    compile(code, "recipe", "exec")
    assert "        batch = next(data)\n        static_ids.copy_(" in code


def test_what_comes_before_a_step_without_a_loop_is_not_forgotten() -> None:
    _, code = recipe(with_source(before="", loop=None))
    assert "while True:  # your loop\n    ...  # what comes before the step, as now\n" in code


def test_rounds_that_accumulate_gradients_are_captured_together() -> None:
    base = with_source(rounds=True)
    assert base.step is not None
    period = ("forward", "backward") * 4 + ("optimizer",)
    steps, code = recipe(replace(base, step=replace(base.step, period=period)))
    compile(code, "recipe", "exec")
    assert "The step is 4 rounds of train.py:41-44" in steps
    assert "`temperature`" not in steps
    assert "for _ in range(4)]\nopt_a.zero_grad(set_to_none=True)" in code
    assert "    if i % 4 == 3:\n        graph.replay()" in code


def test_what_works_for_the_host_runs_after_each_replay() -> None:
    _, code = recipe(with_source(behind="total += loss.item()\nlosses.append(loss.item())"))
    compile(code, "recipe", "exec")
    tail = "    total += loss.item()\n    losses.append(loss.item())\n    steps_done += 1"
    assert f"        graph.replay()\n{tail}" in code


def test_a_batch_fetched_inside_the_step_is_to_be_fetched_before_it() -> None:
    assert "`x` comes from inside the step" in recipe(with_source(fetched=("x",)))[0]


def test_a_batch_of_several_tensors_is_put_together_before_the_step() -> None:
    _, code = recipe(with_source(gathers="static_batch = {'ids': static_ids}"))
    assert "static_batch = {'ids': static_ids}\n\ndef captured_step()" in code


def test_inputs_that_no_expression_gives_are_not_passed_over() -> None:
    assert "    ...  # copy the step's inputs" in recipe(with_source(inputs=()))[1]
    unread = replace(with_source(inputs=()), shapes=Shapes(True))
    assert "copy the step's inputs" not in recipe(unread)[1]


def test_what_an_adapted_batch_keeps_and_what_cannot_be_copied_is_told() -> None:
    steps, code = recipe(
        with_source(adapts="static_batch = copy.copy(batch)", kept=("batch.n",), unseen=("pack",))
    )
    assert "`batch.n` stays in the static batch as in the first one" in steps
    assert "`pack` holds inputs of the step that cannot be exchanged from outside" in steps
    assert "    ...  # copy what the step reads of pack to fixed addresses" in code
    assert code.startswith("import copy\n")
    compile(code, "recipe", "exec")


def test_an_optimizer_that_cannot_follow_a_rate_is_told_in_the_block() -> None:
    base = with_source(optimizers=(("opt_a", "Lion"), ("opt_b", "bnb.optim.AdamW")))
    unsafe = replace(base, facts=replace(base.facts, scheduler_live=True))
    code = (how_to(unsafe, "unsafe") or "").partition("\n\n")[2]
    compile(code, "recipe", "exec")
    assert "...  # opt_a: Lion keeps its learning rate in a graph (rules LS035)" in code
    assert 'for group in opt_b.param_groups:  # before the first step\n    group["lr"] = ' in code


def test_the_pattern_for_an_unknown_step_holds_the_rate_in_a_tensor_too() -> None:
    unsafe = profile(facts={"scheduler_live": True, "optimizer_classes": ("SGD",)})
    code = (how_to(unsafe, "unsafe") or "").partition("\n\n")[2]
    compile(code, "recipe", "exec")
    assert 'for group in optimizer.param_groups:  # before the first step\n    group["lr"]' in code
    assert code.index("param_groups") < code.index("the warm-up steps, as now")


def test_a_step_that_was_not_captured_is_told_what_torch_asks_of_its_optimizer() -> None:
    """Pasted without it, the block raises: param_groups' capturable is False."""
    blocked = replace(
        with_source(), replay=Replay("blocked", "the op stream changes from step to step")
    )
    steps, code = recipe(blocked)
    assert "Set what a capture needs: AdamW capturable=True (`opt_a` and `opt_b`)" in steps
    assert (
        'for group in opt_b.param_groups:  # before the first step\n    group["capturable"]' in code
    )
    sgd = replace(blocked, facts=replace(blocked.facts, optimizer_classes=("SGD",)))
    assert "capturable" not in recipe(sgd)[0]
