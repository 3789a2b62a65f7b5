"""`regard serve`: a trained model over HTTP."""

import sys
from typing import Annotated

import typer

from regard.cli.options import Run, option


def serve(
    run: Run,
    host: Annotated[str, option("Address to listen on.", "HOST")] = "127.0.0.1",
    port: Annotated[int, option("Port; 0 is any free one.", "PORT", 0, 65535)] = 8000,
    token: Annotated[
        str | None,
        option(
            "What requests must send. [default: none on this machine, else random]",
            "TOKEN",
            envvar="REGARD_TOKEN",
            show_envvar=True,
        ),
    ] = None,
    device: Annotated[str, option("Where the model runs: cpu, cuda, ...", "DEVICE")] = "cpu",
) -> None:
    """Serve a run or an export over HTTP, until interrupted.

    POST /v1/predict takes inputs of any task, POST /v1/translate texts to translate; /healthz,
    /readyz and /metrics tell how the server is, /openapi.json describes it all. On a host that
    others can reach, requests need the token. One JSON object for each request goes to standard
    error, without what users sent.
    """  # fmt: skip
    from regard.serving import create_server
    from regard.serving.metrics import log_to_stderr
    from regard.tasks import load
    from regard.web import is_loopback, make_token, run_server
    from regard.web.guard import LOOPBACK

    if token is not None and not token:
        raise typer.BadParameter("--token should not be empty")
    public = not is_loopback(host)
    if public and token is None:
        token = make_token()
        print(f"token: {token}", file=sys.stderr, flush=True)
    predictor = load(run, device=device)
    log_to_stderr()
    app = create_server(predictor, token=token, hosts=() if public else LOOPBACK)
    print(f"serving {run} ({predictor.task})", file=sys.stderr, flush=True)

    def ready(address: str) -> None:
        print(address, flush=True)

    run_server(app, host=host, port=port, ready=ready, timeout_graceful_shutdown=60)
