"""A server on loopback: many clients at a time against one request at a time.

    python -m benchmarks.serving RUN [--clients 64] [--seconds 60]

RUN is a run or an export of the task translate; requests are its test sources, one each, greedy.
The server is a process of its own, and so are the clients. It prints requests a second, the median
and the 99th percentile of the time to answer, errors, and the server's memory.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from regard.tasks import load


async def client(port: int, bodies: list[bytes], end: float, times: list[float]) -> int:
    """Send requests one after the other until `end`; return the number that failed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    failed, number = 0, 0
    while time.perf_counter() < end:
        body = bodies[number % len(bodies)]
        number += 1
        start = time.perf_counter()
        head = f"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer.lower())
        assert length is not None
        await reader.readexactly(int(length[1]))
        times.append(time.perf_counter() - start)
        failed += b" 200 " not in answer[:20]
    writer.close()
    return failed


async def load_server(port: int, bodies: list[bytes], clients: int, seconds: float) -> dict:
    """Requests a second and times of so many clients."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    shifted = [bodies[n:] + bodies[:n] for n in range(clients)]
    failed = await asyncio.gather(*(client(port, own, end, times) for own in shifted))
    median, late = np.percentile(times, [50, 99])
    return {"rate": len(times) / seconds, "p50": median, "p99": late, "errors": sum(failed)}


def memory(process: int) -> float:
    """Resident memory in MB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="a run or an export")
    parser.add_argument("--clients", type=int, default=64, help="at a time")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the measurement")
    given = parser.parse_args()
    texts = load(given.run).examples(1000)
    bodies = [json.dumps({"texts": [text], "beam": 1}).encode() for text in texts]
    command = [sys.executable, "-m", "regard", "serve", str(given.run), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline().strip().rpartition(":")[2])
        asyncio.run(load_server(port, bodies, given.clients, 2.0))  # to warm up
        one = asyncio.run(load_server(port, bodies, 1, given.seconds / 6))
        before = memory(server.pid)
        many = asyncio.run(load_server(port, bodies, given.clients, given.seconds))
        after = memory(server.pid)
    finally:
        server.terminate()
        server.wait()
    for name, row in (("1 client", one), (f"{given.clients} clients", many)):
        print(
            f"{name:<12} {row['rate']:8.1f} requests/s   p50 {1e3 * row['p50']:7.1f} ms   "
            f"p99 {1e3 * row['p99']:7.1f} ms   {row['errors']} errors"
        )
    print(f"ratio {many['rate'] / one['rate']:.2f}×   memory {before:.0f} MB → {after:.0f} MB")


if __name__ == "__main__":
    main()
