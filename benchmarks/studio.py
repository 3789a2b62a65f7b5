"""The studio measured: latency of a key press, load of many clients, weight of the page.

    python -m benchmarks.studio runs/dates

starts `regard studio` on a free port and prints one line for each measurement. The page is used in
headless Chromium.

    python -m benchmarks.studio runs/dates runs/plain --pictures pictures

draws every room in both languages and themes instead.
"""

import argparse
import http.client
import json
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import regard

CLIENTS, EVERY = 32, 0.5  # seconds between the requests of a client
FIRST, LAST = 1_000, 10_000  # requests between which memory is compared
KEYS = 60


@contextmanager
def studio(runs: list[Path], home: Path | None = None) -> Iterator[tuple[int, int]]:
    """A studio of its own process: its port and its process number."""
    with tempfile.TemporaryDirectory() as empty:
        command = [sys.executable, "-m", "regard", "studio", *map(str, runs)]
        command += ["--out", str(home or empty)]
        process = subprocess.Popen(
            [*command, "--port", "0", "--no-open", "--no-token"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r":(\d+)/", line)
        assert found, line
        try:
            yield int(found[1]), process.pid
        finally:
            process.terminate()
            process.wait()


def look(port: int, run: str, text: str, beam: int = 5) -> int:
    """The status of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        body = json.dumps({"run": run, "text": text, "beam": beam})
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/api/v1/look", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def resident(process: int) -> int:
    """Bytes of memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def load(port: int, process: int, run: str, texts: list[str], last: int) -> dict[str, Any]:
    """Many clients, each with two requests a second, until so many are answered."""
    times: list[float] = []
    errors: list[str] = []
    memory: dict[int, int] = {}
    lock = threading.Lock()

    def client(number: int) -> None:
        draw = random.Random(number)
        time.sleep(draw.random() * EVERY)
        while len(times) < last:
            start = time.perf_counter()
            try:
                status = look(port, run, draw.choice(texts))
            except OSError as error:
                status, _ = 0, errors.append(repr(error))
            spent = time.perf_counter() - start
            with lock:
                times.append(spent)
                if status != 200:
                    errors.append(str(status))
                if len(times) in (FIRST, last):
                    memory[len(times)] = resident(process)
            time.sleep(max(0.0, EVERY - spent))

    threads = [threading.Thread(target=client, args=[number]) for number in range(CLIENTS)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ordered = sorted(times)
    grown = memory[last] - memory[FIRST] if FIRST in memory and last > FIRST else 0
    return {
        "requests": len(times),
        "per second": len(times) / (time.perf_counter() - start),
        "errors": len(errors),
        "p50 ms": 1000 * ordered[len(ordered) // 2],
        "p95 ms": 1000 * ordered[int(0.95 * len(ordered))],
        "growth MB": grown / 2**20,
    }


DRAWN = """() => new Promise((done) => {
  const room = document.querySelector("studio-look"), field = room.querySelector("textarea");
  const observer = new MutationObserver(() => {
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - pressed)));
  });
  observer.observe(room, { attributes: true, attributeFilter: ["data-drawn"] });
  let pressed = 0;
  field.addEventListener("keydown", (event) => { pressed = event.timeStamp; }, { once: true });
})"""


WEIGHT = """["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
  .filter(({ name }) => !name.includes("/api/"))
  .reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0)"""


def page(port: int, run: str, text: str) -> dict[str, Any]:
    """First paint, weight, and the time from a key press to the drawn output."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        paints, weights = [], []
        for _ in range(3):
            tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            tab.goto(f"http://127.0.0.1:{port}/#/look?run={run}&text={text}")
            tab.wait_for_selector("studio-look[data-drawn]", state="attached")
            paints.append(
                tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            )
            weights.append(tab.evaluate(WEIGHT))
        tab.wait_for_timeout(500)
        field = tab.locator("textarea")
        field.focus()
        delays = []
        for number in range(KEYS):
            waiting = tab.evaluate_handle(f"() => {{ window.drawn = ({DRAWN})(); }}")
            tab.keyboard.press("Backspace" if number % 2 else "9")
            delays.append(tab.evaluate("window.drawn"))
            waiting.dispose()
            tab.wait_for_timeout(50)
        browser.close()
    return {
        "first paint ms": statistics.median(paints),
        "weight KB": max(weights) / 1024,
        "key press → drawn, median ms": statistics.median(delays),
        "key press → drawn, p95 ms": sorted(delays)[int(0.95 * len(delays))],
    }


def pictures(port: int, names: list[str], folder: Path) -> None:
    """Draw every room in both languages and themes."""
    from playwright.sync_api import sync_playwright

    text = "이천십오년 시월 구일"
    edits = json.dumps([[{"layer": "decoder.attention", "keys": [6]}]])
    hide = urlencode({"run": names[0], "text": text, "edits": edits})
    one = urlencode({"run": names[0], "text": text})
    several = urlencode({"runs": ",".join(names), "text": text})
    rooms = {
        "look": f"look?{one}",
        "edit": f"edit?{hide}",
        "compare": f"compare?{several}",
    }
    rooms |= {
        "workflow": f"workflow?mode=model&{one}&layer=decoder.attention&query=6",
        "free": "workflow?mode=free",
    }
    rooms |= {"gallery": "gallery", "train": f"train?{one}"}
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play, tempfile.TemporaryDirectory() as scratch:
        chromium = shutil.which("chromium")
        browser = play.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"], env=_with_korean_font(Path(scratch))
        )
        for language in ("en", "ko"):
            for theme in ("light", "dark"):
                size = {"width": 1280, "height": 960}
                tab = browser.new_context(
                    viewport=size, locale=language, color_scheme=theme
                ).new_page()
                for room, address in rooms.items():
                    tab.goto("about:blank")
                    tab.goto(f"http://127.0.0.1:{port}/#/{address}")
                    tab.wait_for_selector("main > [data-ready]", state="attached", timeout=60_000)
                    tab.wait_for_timeout(1000)
                    tab.screenshot(path=folder / f"{room}-{language}-{theme}.png")
        browser.close()


def _with_korean_font(folder: Path) -> dict[str, str]:
    """The environment of a browser that finds the Korean font of `regard[visual]`."""
    fonts = Path(str(files("koreanize_matplotlib"))) / "fonts"
    file = folder / "fonts.conf"
    file.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>'
        '<include ignore_missing="yes">/etc/fonts/fonts.conf</include>'
        f"<dir>{fonts}</dir><cachedir>{folder}</cachedir></fontconfig>"
    )
    return {**os.environ, "FONTCONFIG_FILE": str(file)}


def main() -> None:
    """Print the measurements, or draw the rooms."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--requests", type=int, default=LAST)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    run: Path = options.runs[0]
    if options.pictures:
        with studio([], run.parent) as (port, _):
            return pictures(port, [each.name for each in options.runs], options.pictures)
    texts = [str(text) for text in regard.load(run).examples(2000)]
    print(f"{_processor()}, {os.cpu_count()} cores, regard {regard.__version__}")
    with studio([run]) as (port, process):
        look(port, run.name, texts[0])  # loads the model
        for name, value in page(port, run.name, texts[0]).items():
            print(f"{name:<32}{value:10.1f}")
        found = load(port, process, run.name, texts, options.requests)
        for name, value in found.items():
            print(f"{name:<32}{value:10.1f}")
    return None


def _processor() -> str:
    found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()


if __name__ == "__main__":
    main()
