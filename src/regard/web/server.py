"""Run an application on uvicorn."""

import ipaddress
import secrets
import socket
from collections.abc import Callable
from typing import Any

import uvicorn

from regard.system.posix import raise_file_limit
from regard.web.connection import TimedProtocol
from regard.web.guard import HEADER_BYTES
from regard.web.logs import log_to_stderr

FILES = 10_000  # open at a time: each connection is one


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(24)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to a host and a port; 0 is any free port.

    Raises:
        OSError: if the port is taken, with what to do
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off, which delays answers by 40 ms, only for this protocol
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port"
        ) from error
    return listening


def configure(app: Any, **options: Any) -> uvicorn.Config:
    """Return how uvicorn runs an application; `options` are those of `uvicorn.Config`."""
    defaults: dict[str, Any] = {
        "log_config": None,  # its own would not be JSON
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": 15,
        "timeout_graceful_shutdown": 10,
        "ws": "none",
        "http": TimedProtocol,
        "h11_max_incomplete_event_size": HEADER_BYTES,
    }
    return uvicorn.Config(app, **{**defaults, **options})


def run_server(
    app: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    ready: Callable[[str], None] = print,
    **options: Any,
) -> None:
    """Answer requests until the process is interrupted; requests that have begun are finished.

    What the process logs goes to standard error, as lines of JSON.

    Args:
        app: an ASGI application
        host, port: where to listen; port 0 is any free one
        ready: called with the address once the server accepts requests
        options: of `uvicorn.Config`, such as `timeout_graceful_shutdown`
    """
    listening = listen(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}"
    raise_file_limit(FILES)
    log_to_stderr()
    server = uvicorn.Server(configure(app, **options))
    begin = server.startup

    async def startup(sockets: list[socket.socket] | None = None) -> None:
        await begin(sockets)
        if not server.should_exit:
            ready(address)

    server.startup = startup  # type: ignore[method-assign]
    try:
        server.run(sockets=[listening])
    finally:
        listening.close()
