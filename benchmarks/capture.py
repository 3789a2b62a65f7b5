"""The cost of recording attention in a forward pass, without reading the maps.

    python -m benchmarks.capture

Each round runs the model plainly and under `regard.capture`, in turn; the median of each counts.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

import regard
from regard.models import build

VOCABULARY = {"source_vocabulary": 1000, "target_vocabulary": 1000}


class Cost(NamedTuple):
    """Seconds of a forward pass, and how many calls were recorded."""

    case: str
    plain: float
    captured: float
    calls: int

    def __str__(self) -> str:
        more = self.captured / self.plain - 1
        return (
            f"{self.case:<42} {self.plain * 1e3:8.2f} ms  {self.captured * 1e3:8.2f} ms "
            f"{more:+7.1%}  {self.calls:4d} calls"
        )


def cases() -> dict[str, tuple[nn.Module, Callable[[], Tensor]]]:
    """Models and what runs them, by name."""
    torch.manual_seed(0)
    one, batch, pages = (torch.randint(4, 1000, size) for size in ((1, 30), (32, 30), (4, 256)))
    tiny = build("transformer", **VOCABULARY, dim=128, heads=4, hidden=256, layers=4).eval()
    base = build("transformer", **VOCABULARY, dim=512, heads=8, hidden=2048, layers=6).eval()
    luong = build("luong", **VOCABULARY, hidden=256, embedding=128).eval()
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
    states = torch.randn(4, 256, 256)
    return {
        "transformer base, a sentence of 30": (base, lambda: base(one, None, one)),
        "transformer base, 4 sentences of 256": (base, lambda: base(pages, None, pages)),
        "transformer tiny, a sentence of 30": (tiny, lambda: tiny(one, None, one)),
        "transformer tiny, 32 sentences of 30": (tiny, lambda: tiny(batch, None, batch)),
        "GRU with general attention, 32 of 30": (luong, lambda: luong(batch, None, batch)),
        "torch's own encoder d 256, 4 of 256": (encoder, lambda: encoder(states)),
    }


def measure(case: str, model: nn.Module, run: Callable[[], Tensor], seconds: float) -> Cost:
    """Run a case plainly and captured in turn for some time."""
    plain: list[float] = []
    captured: list[float] = []
    end = time.perf_counter() + seconds
    with torch.no_grad():
        run()
        while len(plain) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            plain.append(time.perf_counter() - start)
            start = time.perf_counter()
            with regard.capture(model) as trace:
                run()
            captured.append(time.perf_counter() - start)
    return Cost(case, statistics.median(plain), statistics.median(captured), len(trace))


def main() -> None:
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{'':<42} {'plain':>11}  {'captured':>11}  {'more':>6}")
    for name, (model, run) in cases().items():
        print(measure(name, model, run, seconds=5.0))


if __name__ == "__main__":
    main()
