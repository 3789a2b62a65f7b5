"""Attention within tiles on one thread, and on many at once."""

import threading

import torch
from torch import Tensor

from regard.paths.tile_attention import attend_tiles
from regard.paths.tile_plan import Tile, plan_tiles
from tests.paths.tiles.tilings import SCALE, inputs


def long_window() -> list[Tile]:
    row = torch.arange(150).unsqueeze(0)
    reach = (row - 20).clamp(0), (row + 21).clamp(max=150), row >= 0
    return plan_tiles(*reach, no_mask, 150, 150)


def no_mask(*_: slice) -> Tensor:
    raise AssertionError("every interval is full, so no mask should be asked for")


def test_one_thread_gives_the_same():
    tensors = inputs(queries=150, keys=150, dtype=torch.float32)
    tiles = long_window()

    def work() -> list[Tensor]:
        output = attend_tiles(*tensors, tiles, SCALE)
        return [output, *torch.autograd.grad(output.sum(), tensors)]

    expected = work()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        found = work()
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_eight_threads_at_once_give_the_same():
    tiles = long_window()
    found: dict[int, list[Tensor]] = {}

    def work(name: int) -> None:
        tensors = inputs(queries=150, keys=150, dtype=torch.float32)
        for _ in range(3):
            output = attend_tiles(*tensors, tiles, SCALE)
            found[name] = [output, *torch.autograd.grad(output.sum(), tensors)]

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for results in found.values():
        for one, other in zip(results, found[0], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
