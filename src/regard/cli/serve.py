"""`regard serve`: a trained model over HTTP."""

import logging
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
    others can reach, requests need the token, which is printed after the address if it is random.
    The log on standard error is JSON, an object for each request, without what users sent.
    """  # fmt: skip
    from regard.serving import create_server
    from regard.tasks import load
    from regard.web import is_loopback, make_token, run_server
    from regard.web.guard import LOOPBACK

    if token is not None and not token:
        raise typer.BadParameter("--token should not be empty")
    public = not is_loopback(host)
    is_random = public and token is None
    if is_random:
        token = make_token()
    predictor = load(run, device=device)
    app = create_server(predictor, token=token, hosts=() if public else LOOPBACK)

    def ready(address: str) -> None:
        fields = {"run": str(run), "task": predictor.task, "address": address}
        logging.getLogger("regard.serving").info("serving", extra={"fields": fields})
        print(address, flush=True)
        if is_random:
            print(f"token: {token}", flush=True)

    run_server(app, host=host, port=port, ready=ready, timeout_graceful_shutdown=60)
