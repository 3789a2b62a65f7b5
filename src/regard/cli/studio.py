"""`regard studio`: work with trained models in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import flag, option

SITE = Path("site")  # where `make docs` builds it


def studio(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Run directories, or folders of runs, to offer."),
    ] = None,
    out: Annotated[Path, option("Folder of new runs.", "DIR")] = Path("runs"),
    docs: Annotated[
        Path | None,
        option(
            "Documentation to link to, as `make docs` builds it. [default: site, if there]", "DIR"
        ),
    ] = None,
    host: Annotated[str, option("Address to listen on.", "HOST")] = "127.0.0.1",
    port: Annotated[int, option("Port; 0 is any free one.", least=0, most=65535)] = 8400,
    token: Annotated[
        str | None,
        option("Secret that the page sends with every request. [default: a random one]", "TEXT"),
    ] = None,
    no_token: Annotated[
        bool,
        flag("--no-token", "Answer everybody on this machine, its other users too."),
    ] = False,
    browse: Annotated[bool, flag("--open/--no-open", "Open the page in a browser.")] = True,
) -> None:
    """Look at models, edit, compare and train them in the browser.

    Runs below --out are offered too; without a RUN also three small models of dates that come with
    regard. A training goes on when the studio ends. The address that is
    printed holds a token, without which the studio does not answer.
    """
    if token is not None and (no_token or not token):
        reason = "should not be empty" if not token else "contradicts --no-token: choose one"
        raise typer.BadParameter(f"--token {reason}")
    for run in runs or []:
        if not run.is_dir():
            raise FileNotFoundError(f"{run} is not a directory: give runs, or folders of runs")
    from regard.samples import FOLDER
    from regard.studio import create_studio
    from regard.web import is_loopback, make_token, run_server

    if token is None and not no_token:
        token = make_token()
    if docs is None:
        docs = SITE if (SITE / "guide").is_dir() else None
    elif not (docs / "guide").is_dir():
        raise FileNotFoundError(f"{docs} has no guide: build the documentation with `make docs`")
    app = create_studio(runs or [out, FOLDER], home=out, docs=docs, host=host, token=token)

    def ready(address: str) -> None:
        page = f"{address}/#token={token}" if token else f"{address}/"
        print(f"regard studio: {page} (Ctrl-C ends it)", flush=True)
        if browse and is_loopback(host):
            import webbrowser

            webbrowser.open(page)

    run_server(app, host=host, port=port, ready=ready)
