"""Downloads with a checksum, resumable and limited in size and time."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from regard.system.files import checksum

CHUNK = 1 << 16
TIMEOUT = 30.0  # seconds without any data
LONGEST = 3600.0  # seconds of a download
LARGEST = 8 << 30  # bytes of a file

Progress = Callable[[int, int | None], None]  # bytes so far, total bytes if the server sends them


def fetch(
    url: str,
    path: str | Path,
    sha256: str,
    progress: Progress | None = None,
    *,
    largest: int = LARGEST,
    longest: float = LONGEST,
) -> bool:
    """Download a file, verify its checksum, and only then move it to its place.

    An interrupted download leaves `NAME.part`, which the next call continues if the server can, and
    restarts if it cannot. A file whose checksum is wrong is deleted.

    Args:
        url: http or https
        path: where the file goes; its directory is created
        sha256: the expected checksum, in hexadecimal
        progress: called with the bytes so far and in total
        largest: maximum size in bytes
        longest: maximum time in seconds

    Returns: False if the file existed already, with the right checksum

    Raises:
        ConnectionError: if the download did not finish; the received part is kept
        ValueError: if the file is too large or its checksum is wrong; nothing is kept
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"the URL should start with http:// or https://, got {url!r}")
    sha256 = sha256.lower()
    if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        raise ValueError(f"the sha256 should have 64 hexadecimal digits, got {sha256!r}")
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory, not a file")
    if path.is_file() and checksum(path) == sha256:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _download(url, part, progress, largest, longest)
    except urllib.error.HTTPError as error:
        raise ConnectionError(f"{url} cannot be fetched: {error.code} {error.reason}") from error
    except (http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise ConnectionError(
            f"the download of {url} was interrupted ({reason}); run the command again to continue"
        ) from error
    found = checksum(part)
    if found != sha256:
        part.unlink()
        raise ValueError(
            f"{url} is not the expected file: its sha256 is {found} instead of {sha256}; "
            "it was deleted"
        )
    part.replace(path)
    return True


def _download(
    url: str, part: Path, progress: Progress | None, largest: int, longest: float
) -> None:
    end = time.monotonic() + longest
    have = part.stat().st_size if part.exists() else 0
    try:
        answer = _request(url, have)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:  # 416: there is nothing after what we have
            raise
        error.close()
        have, answer = 0, _request(url, 0)
    with answer:
        resumed = have > 0 and answer.status == 206
        have = have if resumed else 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with part.open("ab" if resumed else "wb") as file:
            while chunk := answer.read1(CHUNK):  # returns what has arrived: time is checked
                have += len(chunk)
                if have > largest or (total or 0) > largest:
                    part.unlink()
                    raise ValueError(f"{url} is larger than {largest:,} bytes; it was deleted")
                if time.monotonic() > end:
                    raise TimeoutError(f"not finished after {longest:.0f} s")
                file.write(chunk)
                if progress is not None:
                    progress(have, total)
        if total is not None and have < total:
            raise http.client.IncompleteRead(b"", total - have)


def _request(url: str, start: int) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    return urllib.request.urlopen(request, timeout=TIMEOUT)
