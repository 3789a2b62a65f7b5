import io
import re

from rich.console import Console

from regard.training import train
from regard.training.progress import Bar, Lines
from regard.training.state import State


def test_lines_tell_every_evaluation_and_where_a_run_goes_on(tmp_path, largest, configure):
    stream = io.StringIO()
    train(largest(), configure(epochs=2), tmp_path / "run", progress=Lines(stream))
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"step 5 of 10 · epoch 1 · valid accuracy 0\.\d{4} \(best so far\)", lines[0]
    )
    assert lines[1].startswith("step 11 of 10 · epoch 2 · valid accuracy")  # epochs differ
    stream.truncate(0)
    train(largest(), configure(epochs=3), tmp_path / "run", resume=True, progress=Lines(stream))
    assert "resuming after step 11 of 15 · epoch 2" in stream.getvalue()


def test_the_bar_shows_speed_loss_metric_and_time_left(tmp_path, largest, configure):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, highlight=False)
    bar = Bar(console)
    train(largest(), configure(steps=10, evaluate_every=3), tmp_path / "run", progress=bar)
    shown = stream.getvalue()
    assert "valid accuracy" in shown
    assert re.search(r"loss \d\.\d{4} · [\d,]+ rows/s · \d+ s left", shown)
    assert "10/10" in shown


def test_a_run_that_time_ends_has_no_last_step(tmp_path, largest, configure):
    stream = io.StringIO()
    bar = Bar(Console(file=stream, force_terminal=True, width=120, highlight=False))
    config = configure(minutes=1e-6)
    train(largest(), config, tmp_path / "run", progress=bar)
    assert "step 1 · epoch 1 · valid" in stream.getvalue()


def test_the_bar_fits_80_columns():
    stream = io.StringIO()
    bar = Bar(Console(file=stream, force_terminal=True, width=80, highlight=False))
    bar.start(State(step=1), 2_000_000, "tokens", "exact")
    bar.step(State(step=1_234_567, seconds=7.0), 0.1234, 123_456.0, 45_296.0)
    bar.progress.refresh()
    bar.stop()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    (line,) = {line for line in re.split(r"[\r\n]", plain) if "tokens/s" in line}
    assert len(line) <= 80
    assert line.startswith("1,234,567/2,000,000 ")
    assert line.rstrip().endswith("loss 0.1234 · 123,456 tokens/s · 12 h 34 min left")
