"""How many files does a reader walk through? Five walks, and the files that really execute.

python -m benchmarks.walks             # the number of files of each walk
python -m benchmarks.walks --files     # and their names, in the order in which they are entered

Each walk is taken twice, and the second time counts: what only loads or compiles is left out.
"""

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType

import torch

import regard
from regard.cli import main as command
from regard.samples import FOLDER

SOURCE = Path(regard.__file__).parent
Walk = Callable[[], object]


def attend() -> Walk:
    """`attend` with an additive score, forward."""
    score = regard.Additive(64, 64, 64)
    query, key = torch.randn(2, 50, 64), torch.randn(2, 60, 64)
    return lambda: regard.attend(query, key, key, score=score)


def train(folder: Path) -> Walk:
    """`regard train dates`, a few steps."""
    numbers = iter(range(2))
    small = ["data.count=200", "data.valid_count=20", "training.epochs=1"]
    settings = [part for setting in small for part in ("--set", setting)]

    def walk() -> int:
        return command(["train", "dates", "--out", str(folder / str(next(numbers))), *settings])

    return walk


def see(folder: Path) -> Walk:
    """`regard see RUN TEXT --out x.html`."""
    page = folder / "x.html"
    return lambda: command(["see", str(FOLDER / "dates-luong"), "May 3, 1994", "--out", str(page)])


def capture() -> Walk:
    """`regard.capture` on a model of Hugging Face transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4)).eval()
    ids = torch.arange(11).unsqueeze(0)

    def walk() -> None:
        with torch.no_grad(), regard.capture(model) as trace:
            model(ids)
        trace[0].map.dense()

    return walk


def beam() -> Walk:
    """Beam search of a Transformer, with maps."""
    translator = regard.load(FOLDER / "dates-transformer")
    return lambda: translator.translate(["May 3, 1994"], return_map=True)


def walks(folder: Path) -> dict[str, Walk]:
    return {
        "attend(score=Additive)": attend(),
        "regard train dates": train(folder),
        "regard see RUN TEXT --out x.html": see(folder),
        "regard.capture on a Hugging Face model": capture(),
        "beam search of a Transformer with maps": beam(),
    }


@contextlib.contextmanager
def entered() -> Iterator[list[Path]]:
    """The files of regard whose functions are entered in this thread, in order, each once."""
    files: dict[CodeType, None] = {}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.setdefault(frame.f_code)

    names: list[Path] = []
    sys.setprofile(profile)
    try:
        yield names
    finally:
        sys.setprofile(None)
        paths = (Path(code.co_filename) for code in files)
        own = (path.relative_to(SOURCE) for path in paths if path.is_relative_to(SOURCE))
        names += dict.fromkeys(own)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", action="store_true", help="print the names of the files too")
    options = parser.parse_args()
    print("| walk | files |\n|---|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, walk in walks(Path(folder)).items():
            silence = io.StringIO()
            with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
                walk()
                with entered() as files:
                    walk()
            print(f"| {name} | {len(files)} |", flush=True)
            if options.files:
                print("\n".join(f"    {file}" for file in files))


if __name__ == "__main__":
    main()
