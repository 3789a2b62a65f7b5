"""The training loop: batches in, a run directory out, the same however often it is killed."""

import math
from pathlib import Path

import torch

from regard.training.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from regard.training.config import Config
from regard.training.finish import (
    Outcome,
    evaluate,
    finish,
    finished,
    outcome,
    publish_best,
)
from regard.training.interrupt import Interrupt
from regard.training.metrics import Log
from regard.training.optimizer import AdamW
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
    progress = progress or Silent()
    config = _with_threads(config)
    options = config.training
    seed_all(config.seed)
    model = task.build()
    if not (resume and checkpoints(run)):
        start_from(model, options.init)
    optimizer = AdamW(model, options)
    with (
        open_run(
            run,
            config,
            task,
            resume=resume,
            accept_changed_data=accept_changed_data,
            message=progress.message,
        ) as newest,
        Interrupt() as interrupt,
    ):
        state = State() if newest is None else load_checkpoint(newest, model, optimizer)
        if over := finished(run, state, options):
            return over
        last = last_step(task, options)
        with Log(run, state, options, task, last, progress) as log:

            def save_and_evaluate() -> None:
                save_checkpoint(run, state, model, optimizer)
                if evaluation_due(state, options) and not interrupt.requested:
                    log.evaluation(evaluate(task, model, state.step))
                    save_checkpoint(run, state, model, optimizer)
                publish_best(run, state, options)

            model.train()
            if evaluation_due(state, options):  # it was killed before or while it evaluated
                save_and_evaluate()
            if interrupt.requested and not state.evaluated:
                return outcome(state, "interrupted")
            lowered = times_lowered(state.scores(), options.lower_after)
            for batches in steps(task, state, options):
                lr = learning_rate(options, state.step, last=last, lowered=lowered)
                loss, count = 0.0, 0
                for batch in batches:
                    part = task.loss(model, batch)
                    part.total.backward()
                    loss, count = loss + part.total.item(), count + part.count
                norm = optimizer.step(lr, count)
                if not math.isfinite(loss + norm):
                    raise FloatingPointError(_diverged(run, state, loss, norm))
                log.step(lr, loss, count, norm)

                saving = state.step % options.save_every == 0 or interrupt.requested
                if saving or evaluation_due(state, options):
                    save_and_evaluate()
                    lowered = times_lowered(state.scores(), options.lower_after)
                if interrupt.requested:
                    break
            if not end_reason(state, options) or not state.evaluated:
                return outcome(state, "interrupted")
            return finish(task, model, run, state, options, log.metrics)


def _with_threads(config: Config) -> Config:
    """Set the number of threads and record it: sums depend on it."""
    threads = config.training.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    training = config.training.model_copy(update={"threads": threads})
    return config.model_copy(update={"training": training})


def _diverged(run: Path, state: State, loss: float, norm: float) -> str:
    """The error when the loss or the gradient is not finite."""
    last = max(checkpoints(run), default=None)
    kept = f"the last good checkpoint is step-{last}" if last else "there is no checkpoint yet"
    what = f"the loss became {loss}" if not math.isfinite(loss) else f"the gradient became {norm}"
    return (
        f"{what} at step {state.step}, in epoch {state.current_epoch}; {kept} in {run}; lower "
        "training.lr, raise training.warmup or set training.clip"
    )
