"""The training loop: batches in, a run directory out, the same however often it is killed."""

import math
from pathlib import Path

import torch

from regard.training.checkpoint import load_checkpoint, save_checkpoint
from regard.training.config import Config
from regard.training.ending import diverged, due, end, last_step, steps
from regard.training.evaluate import evaluate
from regard.training.finish import Outcome, finish, finished, outcome, publish_best
from regard.training.folder import open_run
from regard.training.interrupt import Interrupt
from regard.training.log import Log
from regard.training.optimizer import AdamW
from regard.training.progress import Progress, Silent
from regard.training.random_state import seed_all
from regard.training.schedule import learning_rate, times_lowered
from regard.training.state import State
from regard.training.task import Task


def train(
    task: Task,
    config: Config,
    run: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Train a task's model into a run directory.

    Killed at any moment and resumed, a run ends with the weights that it would have had anyway.

    Args:
        task: data, model, loss and metric, made from the configuration
        run: the directory: new, or with `resume` one that was begun with the same configuration,
            but for the `[training]` table
        progress: who is told what happens; by default nobody

    Raises:
        FileExistsError: if the directory holds a run, and it is not to be resumed
        FloatingPointError: if the loss or its gradient is not finite
    """
    config = _with_threads(config)
    options = config.training
    seed_all(config.seed)
    model = task.build()
    optimizer = AdamW(model, options)
    with open_run(run, config, task, resume=resume) as newest, Interrupt() as interrupt:
        state = State() if newest is None else load_checkpoint(newest, model, optimizer)
        if over := finished(run, state, options):
            return over
        last = last_step(task, options)
        lowered = times_lowered(state.scores(), options.lower_after)
        with Log(run, state, options, task, last, progress or Silent()) as log:
            model.train()
            for batches in steps(task, state, options):
                lr = learning_rate(options, state.step, last=last, lowered=lowered)
                loss, count = 0.0, 0
                for batch in batches:
                    part = task.loss(model, batch)
                    part.total.backward()
                    loss, count = loss + part.total.item(), count + part.count
                norm = optimizer.step(lr, count)
                if not math.isfinite(loss + norm):
                    raise FloatingPointError(diverged(run, state, loss, norm))
                log.step(lr, loss, count, norm)

                judged = bool(end(state, options)) or due(state, options.evaluate_every)
                if judged:
                    log.evaluation(evaluate(task, model, state.step))
                    lowered = times_lowered(state.scores(), options.lower_after)
                if judged or state.step % options.save_every == 0 or interrupt.asked:
                    save_checkpoint(run, state, model, optimizer)
                    publish_best(run, state, options)
                if interrupt.asked:
                    break
            if not end(state, options):
                return outcome(state, "interrupted")
            return finish(task, model, run, state, options, log.metrics)


def _with_threads(config: Config) -> Config:
    """Use as many threads as asked for, and write down how many: sums depend on it."""
    threads = config.training.threads or torch.get_num_threads()
    torch.set_num_threads(threads)
    training = config.training.model_copy(update={"threads": threads})
    return config.model_copy(update={"training": training})
