import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regard.data import fetch

CONTENT = bytes(range(256)) * 1021
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """A file server that can break off in the middle, and may or may not know ranges."""

    content = CONTENT
    break_after: int | None = None  # bytes of an answer before the line goes dead
    ranges = True

    def __init__(self):
        self.requested = []  # the Range of every request
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/file"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.requested.append(wanted)
        content, start = self.server.content, 0
        if self.path != "/file":
            self.send_error(404)
            return
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][: self.server.break_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_checked_and_reported(server, tmp_path):
    steps = []
    path = tmp_path / "deep" / "file.gz"
    assert fetch(server.url, path, SHA256.upper(), lambda *step: steps.append(step)) is True
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["file.gz"]
    assert steps == sorted(steps)
    assert steps[-1] == (len(CONTENT), len(CONTENT))


def test_a_file_that_is_there_is_not_fetched_again(server, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    assert fetch(server.url, tmp_path / "file", SHA256) is False
    assert server.requested == []


def test_a_file_that_is_there_but_wrong_is_replaced_only_when_the_new_one_is_right(
    server, tmp_path
):
    (tmp_path / "file").write_bytes(b"old")
    server.content = b"corrupted"
    with pytest.raises(ValueError, match="not the expected file"):
        fetch(server.url, tmp_path / "file", SHA256)
    assert (tmp_path / "file").read_bytes() == b"old"
    server.content = CONTENT
    assert fetch(server.url, tmp_path / "file", SHA256) is True
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_corrupted_download_is_refused_and_nothing_is_left(server, tmp_path):
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(ValueError, match=f"instead of {SHA256}; it was deleted"):
        fetch(server.url, tmp_path / "file", SHA256)
    assert names(tmp_path) == []


def test_an_interrupted_download_goes_on_where_it_stopped(server, tmp_path):
    server.break_after = 70001
    with pytest.raises(ConnectionError, match=r"interrupted.*run the command again"):
        fetch(server.url, tmp_path / "file", SHA256)
    assert names(tmp_path) == ["file.part"]
    server.break_after = None
    assert fetch(server.url, tmp_path / "file", SHA256) is True
    assert server.requested == [None, "bytes=70001-"]
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert names(tmp_path) == ["file"]


def test_an_interrupted_download_begins_again_where_the_server_knows_no_ranges(server, tmp_path):
    server.ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:7001])
    assert fetch(server.url, tmp_path / "file", SHA256) is True
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize("extra", [b"", b"and more"])
def test_a_part_with_nothing_after_it_begins_again(server, tmp_path, extra):
    (tmp_path / "file.part").write_bytes(CONTENT + extra)
    assert fetch(server.url, tmp_path / "file", SHA256) is True
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_part_of_another_file_is_refused_once_and_then_forgotten(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"something else")
    with pytest.raises(ValueError, match="it was deleted"):
        fetch(server.url, tmp_path / "file", SHA256)
    assert names(tmp_path) == []
    assert fetch(server.url, tmp_path / "file", SHA256) is True


def test_an_absent_file_and_an_absent_server_are_one_sentence(server, tmp_path):
    with pytest.raises(ConnectionError, match="cannot be fetched: 404"):
        fetch(server.url + "s", tmp_path / "file", SHA256)
    with Server() as closed:
        url = closed.url
    with pytest.raises(ConnectionError, match="refused"):
        fetch(url, tmp_path / "file", SHA256)
    assert names(tmp_path) == []


def test_bad_arguments_are_refused_before_anything_is_asked(server, tmp_path):
    with pytest.raises(ValueError, match="http:// or https://"):
        fetch("file:///etc/hosts", tmp_path / "file", SHA256)
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        fetch(server.url, tmp_path / "file", "abc")
    with pytest.raises(IsADirectoryError):
        fetch(server.url, tmp_path, SHA256)
    assert server.requested == []


def test_a_file_that_is_too_large_is_not_kept(server, tmp_path):
    with pytest.raises(ValueError, match="larger than 1,000 bytes"):
        fetch(server.url, tmp_path / "file", SHA256, largest=1000)
    assert list(tmp_path.iterdir()) == []


def test_a_download_has_a_time_limit(server, tmp_path):
    with pytest.raises(ConnectionError, match="not finished after -0 s"):
        fetch(server.url, tmp_path / "file", SHA256, longest=-0.1)
