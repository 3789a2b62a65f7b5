"""Files from the network: checked against their checksum, whole or not there at all."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

PIECE = 1 << 16
PATIENCE = 30.0  # seconds without an answer

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if the server says so


def fetch(url: str, path: str | Path, sha256: str, progress: Progress | None = None) -> bool:
    """Download a file next to its place, check it, and only then put it there.

    An interrupted download leaves `NAME.part`, which the next call continues if the server can, and
    begins again if it cannot. A file whose checksum is wrong is deleted.

    Args:
        url: http or https
        path: where the file goes; its folder is made
        sha256: the checksum it must have, in hexadecimal
        progress: told the bytes so far and in all

    Returns: False if the file was there already, with the right checksum

    Raises:
        ConnectionError: if the download did not finish; what came is kept
        ValueError: if the checksum is wrong; nothing is kept
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a URL must begin with http:// or https://, got {url!r}")
    sha256 = sha256.lower()
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise ValueError(f"a sha256 has 64 hexadecimal digits, got {sha256!r}")
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file")
    if path.is_file() and checksum(path) == sha256:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _download(url, part, progress)
    except urllib.error.HTTPError as error:
        raise ConnectionError(f"{url} cannot be fetched: {error.code} {error.reason}") from error
    except (http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConnectionError(
            f"the download of {url} was interrupted ({reason}); run it again to go on"
        ) from error
    found = checksum(part)
    if found != sha256:
        part.unlink()
        raise ValueError(
            f"{url} is not the file that was expected: its sha256 is {found} instead of {sha256}; "
            "nothing was kept"
        )
    part.replace(path)
    return True


def checksum(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(url: str, part: Path, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    try:
        answer = _ask(url, have)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:  # 416: nothing after what we have, perhaps all is there
            raise
        error.close()
        have, answer = 0, _ask(url, 0)
    with answer:
        resumed = have > 0 and answer.status == 206
        have = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with part.open("ab" if resumed else "wb") as file:
            while piece := answer.read(PIECE):
                file.write(piece)
                have += len(piece)
                if progress is not None:
                    progress(have, total)
        if total is not None and have < total:
            raise http.client.IncompleteRead(b"", total - have)


def _ask(url: str, start: int) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    return urllib.request.urlopen(request, timeout=PATIENCE)
