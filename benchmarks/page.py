"""How large pages are, how soon they answer in a real browser, and what they ask the network.

python -m benchmarks.page            (needs chromium and playwright)
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from regard import attend, causal
from regard.trace import Call, Trace
from regard.visual.page import write

READY = "regard-page[data-ready]"
# Move the pointer over the map; milliseconds until the sentence and the cross are painted, and
# until all other views are.
HOVER = """async (moves) => {
  const stage = document.querySelector("regard-heatmap .stage");
  const box = stage.getBoundingClientRect();
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(null);
  }));
  const answers = [], all = [];
  for (let i = 0; i < moves; i++) {
    const place = (size, turn) => size * (0.3 + 0.6 * ((i * turn) % 1));
    const [x, y] = [place(box.width, 0.618), place(box.height, 0.414)];
    const at = { clientX: box.left + x, clientY: box.top + y };
    const before = document.querySelector(".sentence").textContent;
    const start = performance.now();
    stage.dispatchEvent(new PointerEvent("pointermove", { ...at, bubbles: true }));
    await painted();
    if (document.querySelector(".sentence").textContent === before) throw Error("no answer");
    answers.push(performance.now() - start);
    await painted();
    all.push(performance.now() - start);
    await painted();
  }
  return [answers, all].map((times) => times.sort((a, b) => a - b));
}"""


def small() -> Trace:
    """One map of 32 × 40."""
    weights = torch.randn(1, 32, 40).mul(2).softmax(-1)
    words = [f"word{index}" for index in range(40)]
    return Trace.of_maps({"cross": weights}, queries=words[:32], keys=words)


def layers() -> Trace:
    """12 layers × 12 heads × 512 tokens of causal attention."""
    words = [f"word{index}" for index in range(512)]
    calls = []
    for layer in range(12):
        query, key = torch.randn(2, 12, 512, 16)
        attended = attend(query * 2, key, key, mask=causal(), return_map=True)
        calls.append(Call(f"layers.{layer}", attended.map, "source", "source", {"path": "fused"}))
    return Trace(calls, {"source": words})


def noise() -> Trace:
    """The same size with nothing to compress: weights that are all noise."""
    words = [f"word{index}" for index in range(512)]
    maps = {f"layers.{i}": torch.rand(12, 512, 512) for i in range(12)}
    maps = {name: map / map.sum(-1, keepdim=True) for name, map in maps.items()}
    return Trace.of_maps(maps, queries=words)


def long() -> Trace:
    """One map of 16,384 × 16,384 that never exists."""
    query, key = torch.randn(2, 1, 16384, 16)
    attended = attend(query * 2, key, key, return_map=True)
    words = [f"word{index}" for index in range(16384)]
    return Trace(
        [Call("long", attended.map, "source", "source", {"path": "fused"})], {"source": words}
    )


CASES: dict[str, Callable[[], Trace]] = {f.__name__: f for f in (small, layers, noise, long)}


def measure(name: str, folder: Path, chromium: str) -> dict[str, float | int | str]:
    """Write one page, open it with the network blocked, move the pointer, zoom in."""
    from playwright.sync_api import sync_playwright

    torch.manual_seed(0)
    trace = CASES[name]()
    start = time.perf_counter()
    file = write(trace, folder / f"{name}.html")
    written = time.perf_counter() - start
    requests: list[str] = []
    errors: list[str] = []
    with sync_playwright() as play:
        arguments = ["--no-sandbox", "--enable-precise-memory-info"]
        browser = play.chromium.launch(executable_path=chromium, args=arguments)
        tab = browser.new_context(offline=True, viewport={"width": 1300, "height": 900}).new_page()
        tab.on("request", lambda request: requests.append(request.url))
        tab.on("console", lambda message: errors.append(message.text))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(file.as_uri(), wait_until="commit")
        tab.wait_for_selector(READY, state="attached")
        ready = tab.evaluate("Number(document.querySelector('regard-page').dataset.ready)")
        tab.wait_for_timeout(1000)
        answers, settled = tab.evaluate(HOVER, 60)
        memory = tab.evaluate("performance.memory.usedJSHeapSize")
        for _ in range(30):
            tab.click("regard-heatmap [data-say=zoomIn]")
        cell = tab.evaluate("document.querySelector('regard-heatmap').window.cell")
        browser.close()
    outside = [url for url in requests if not url.startswith(("data:", file.as_uri()))]
    return {
        "page": name,
        "written in s": round(written, 2),
        "file in KB": round(file.stat().st_size / 1000),
        "interactive in s": round(ready / 1000, 2),
        "hover median in ms": round(answers[len(answers) // 2], 1),
        "hover worst in ms": round(answers[-1], 1),
        "all views median in ms": round(settled[len(settled) // 2], 1),
        "all views worst in ms": round(settled[-1], 1),
        "JS heap in MB": round(memory / 1e6),
        "pixels of a cell at most": round(cell),
        "requests": len(outside),
        "errors": len(errors),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", choices=[*CASES, []], help="all, if none is named")
    names = parser.parse_args().pages or list(CASES)
    chromium = shutil.which("chromium")
    if chromium is None:
        print("benchmarks.page needs chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            print(json.dumps(measure(name, Path(folder), chromium)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
