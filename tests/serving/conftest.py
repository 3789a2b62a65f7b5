"""A real server on loopback, in a thread of the test."""

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Callable[..., httpx.Client]:
    """Start a server for a predictor and return a client of it."""

    def start(predictor: Any, **options: Any) -> httpx.Client:
        from regard.serving import create_server
        from regard.web.server import configure

        listening = socket.create_server(("127.0.0.1", 0))
        app = create_server(predictor, **options)
        server = uvicorn.Server(configure(app, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        client = httpx.Client(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=30)

        def stop() -> None:
            client.close()
            server.should_exit = True
            thread.join(20)
            listening.close()
            assert not thread.is_alive()

        request.addfinalizer(stop)
        return client

    return start


@pytest.fixture
def translator() -> Any:
    """A small translator with random weights."""
    import torch

    from regard.data import train_tokenizer
    from regard.tasks import Translator
    from regard.tasks.translator import build_model

    torch.manual_seed(1)
    letters = train_tokenizer("characters", ["abcdefgh 가나다"])
    model = build_model({"kind": "luong", "preset": "tiny", "hidden": 8}, letters, letters)
    return Translator(model, letters, letters)
