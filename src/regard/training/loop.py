"""The training loop: batches in, a run directory out, the same however often it is killed."""

import math
from contextlib import ExitStack
from pathlib import Path

import torch

from regard.training.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from regard.training.config import Config
from regard.training.device import INITIAL_SCALE, TaskLoss, find_device, next_scale
from regard.training.finish import (
    Outcome,
    evaluate,
    finish,
    finished,
    outcome,
    publish_best,
)
from regard.training.interrupt import Interrupt
from regard.training.metrics import Log, Metrics, NoMetrics
from regard.training.optimizer import AdamW
from regard.training.processes import (
    check_divisible,
    joined,
    on_first,
    own_rows,
    parallel,
    rank,
    share,
    summed,
    world,
)
from regard.training.progress import Progress, Silent
from regard.training.random_state import seed_all
from regard.training.run_directory import open_run
from regard.training.schedule import (
    end_reason,
    evaluation_due,
    last_step,
    learning_rate,
    steps,
    times_lowered,
)
from regard.training.state import State
from regard.training.task import Task
from regard.training.weights import start_from


def train(
    task: Task,
    config: Config,
    run: Path,
    *,
    resume: bool = False,
    accept_changed_data: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Train a task's model into a run directory.

    Killed at any moment and resumed, a run ends with the weights that it would have had anyway.

    Args:
        task: data, model, loss and metric, made from the configuration; to resume, made with the
            run's own tokenizers
        run: the directory: new, or with `resume` one that was started with the same configuration
            except for the `[training]` table
        accept_changed_data: resume although the data has changed
        progress: receives training events; by default nothing is displayed

    Raises:
        FileExistsError: if the directory holds a run and `resume` is False
        FloatingPointError: if the loss or its gradient is not finite
        ValueError: if the run cannot be resumed: other data, another configuration, damaged files
    """
    config = _resolved(config)
    with joined(config), ExitStack() as stack:
        progress = progress if progress is not None and rank() == 0 else Silent()
        options = config.training
        seed_all(config.seed)
        model = task.build().to(find_device(options.device))
        if not (resume and checkpoints(run)):
            start_from(model, options.init)
        on_first(lambda: check_divisible(task))
        compute = parallel(TaskLoss(task, model, options), model, config.distributed)
        optimizer = AdamW(model, options)
        if rank():
            seed_all((config.seed + rank() * 2**16 + 1) % 2**32)  # other dropout than the first

        def open_directory() -> Path | None:
            return stack.enter_context(
                open_run(
                    run,
                    config,
                    task,
                    resume=resume,
                    accept_changed_data=accept_changed_data,
                    message=progress.message,
                )
            )

        newest = on_first(open_directory)
        interrupt = stack.enter_context(Interrupt())
        state = State() if newest is None else load_checkpoint(newest, model, optimizer)
        if (options.precision == "float16") != (state.scale > 1.0):  # new, or set to another one
            state.scale = INITIAL_SCALE if options.precision == "float16" else 1.0
        if over := on_first(lambda: finished(run, state, options)):
            return over
        last = last_step(task, options)
        metrics = Metrics(run, state) if rank() == 0 else NoMetrics()
        log = stack.enter_context(Log(metrics, state, options, task, last, progress))

        def save_and_evaluate() -> None:
            save_checkpoint(run, state, model, optimizer)
            if evaluation_due(state, options) and not any(summed(interrupt.requested)):
                log.evaluation(evaluate(task, model, state.step))
                save_checkpoint(run, state, model, optimizer)
            on_first(lambda: publish_best(run, state, options))

        model.train()
        if evaluation_due(state, options):  # it was killed before or while it evaluated
            save_and_evaluate()
        if any(summed(interrupt.requested)) and not state.evaluated:
            return outcome(state, "interrupted")
        lowered = times_lowered(state.ranks(), options.lower_after)
        for batches in steps(task, state, options):
            lr = learning_rate(options, state.step, last=last, lowered=lowered)
            loss, count = 0.0, 0.0
            for batch in batches:
                part = compute(share(batch))
                own = own_rows(batch)
                weight = state.scale * own
                (part.total if weight == 1.0 else part.total * weight).backward()
                loss, count = loss + part.total.item() * own, count + part.count * own
            loss, count = summed(loss, count)
            # the gradients are means over the processes
            norm = optimizer.step(lr, count * state.scale / world())
            finite = math.isfinite(norm)
            if not math.isfinite(loss) or not (finite or state.scale > 1.0):
                raise FloatingPointError(_diverged(run, state, loss, norm))
            if options.precision == "float16":
                state.scale = next_scale(state.scale, state.step, finite)
            log.step(lr, loss, int(count), norm)
            state.seconds, signals = summed(state.seconds * (rank() == 0), interrupt.requested)

            if state.step % options.save_every == 0 or signals or evaluation_due(state, options):
                save_and_evaluate()
                lowered = times_lowered(state.ranks(), options.lower_after)
                (signals,) = summed(interrupt.requested)
            if signals:
                break
        if not end_reason(state, options) or not state.evaluated:
            return outcome(state, "interrupted")
        return finish(task, model, run, state, options, metrics)


def _resolved(config: Config) -> Config:
    """Set the number of threads, and record it and the device: sums depend on them.

    Raises:
        ValueError: if the device is not there
    """
    threads = config.training.threads or torch.get_num_threads()
    device = config.training.device
    found = find_device(device)
    torch.set_num_threads(threads)
    changes = {"threads": threads, "device": found.type if device == "auto" else device}
    training = config.training.model_copy(update=changes)
    return config.model_copy(update={"training": training})


def _diverged(run: Path, state: State, loss: float, norm: float) -> str:
    """The error when the loss or the gradient is not finite."""
    last = max(checkpoints(run), default=None)
    kept = f"the last good checkpoint is step-{last}" if last else "no checkpoint was saved yet"
    what = f"the loss became {loss}" if not math.isfinite(loss) else f"the gradient became {norm}"
    return (
        f"{what} at step {state.step}, in epoch {state.current_epoch}; {kept} in {run}; lower "
        "training.lr, raise training.warmup or set training.clip"
    )
