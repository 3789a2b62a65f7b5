"""Kills, malformed requests and bad clients of a real process: nothing wrong, nobody blocked."""

import http.client
import json
import os
import random
import signal
import socket
import threading
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard
from tests.loopback import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc"), reason="reads /proc"),
]

KILLS = 10
TEXTS = ["e f g", "a b", "c d e f"]
SECONDS = 30  # until anything must have happened
IDLE = 2  # seconds after which this server closes idle connections
MANY = settings(max_examples=250, database=None, suppress_health_check=list(HealthCheck))
HEAD = "POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def serve(run, port, ready):
    """Serve a run until the process is killed; the address is sent to `ready`."""
    from regard.serving import create_server
    from regard.web import connection, guard, run_server

    connection.UNREAD_SECONDS = guard.SEND_SECONDS = 2 * IDLE
    app = create_server(regard.load(run))
    run_server(app, port=port, ready=ready.send, timeout_keep_alive=IDLE)


@pytest.fixture(scope="module")
def start(processes, copy_run):
    """Start servers; they are killed at the end."""
    started = []

    def begin(port=0):
        ours, theirs = processes.Pipe()
        process = processes.Process(target=serve, args=(copy_run, port, theirs))
        process.start()
        started.append(process)
        assert ours.poll(SECONDS), "the server does not start"
        return process, int(ours.recv().rpartition(":")[2])

    yield begin
    for process in started:
        process.kill()
        process.join(SECONDS)


@pytest.fixture(scope="module")
def server(start):
    return start()


@pytest.fixture
def port(server):
    process, port = server
    yield port
    assert process.is_alive()
    assert translate(port, "a b").status == 200


def translate(port, *texts, beam=1):
    return Client(port)("POST", "/v1/translate", {"texts": texts, "beam": beam})


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def memory(process):
    """Bytes that a process holds."""
    with open(f"/proc/{process.pid}/statm") as file:
        return 4096 * int(file.read().split()[1])


def open_files(process):
    """How many files and connections a process has open."""
    return len(os.listdir(f"/proc/{process.pid}/fd"))


# ------------------------------------------------------------------------------ kills


def test_every_answer_before_a_kill_was_right(start, copy_run):
    translations = regard.load(copy_run).translate(TEXTS, beam=1)
    expected = {text: one.text for text, one in zip(TEXTS, translations, strict=True)}
    answers, draw, over = [], random.Random(2), threading.Event()
    _, port = process, _ = start()

    def ask(number):
        while not over.is_set():
            text = TEXTS[number % len(TEXTS)]
            try:
                answer = translate(port, text)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
                continue
            assert answer.status == 200
            found = answer.json["translations"][0]["hypotheses"][0]["text"]
            answers.append((text, found))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(KILLS):
            before, end = len(answers), time.monotonic() + SECONDS
            while len(answers) == before and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 0.2))
            process.kill()
            process.join(SECONDS)
            assert len(answers) > before
            if number < KILLS - 1:
                process, _ = start(port)
    finally:
        over.set()
        for thread in threads:
            thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert all(found == expected[text] for text, found in answers)


def test_a_terminated_server_finishes_what_it_accepted(start):
    process, port = start()
    found = []

    def ask():
        found.append(translate(port, *(TEXTS * 20), beam=20).status)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.1)
    process.terminate()
    thread.join(SECONDS)
    process.join(SECONDS)
    assert found == [200]
    assert process.exitcode in (0, -signal.SIGTERM)


# ------------------------------------------------------------------------------ malformed requests


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["texts", "beam", "n_best", "penalty", "prefix", "sampling", "stream", "timeout", "inputs"]
)
PATHS = st.sampled_from(["/v1/translate", "/v1/predict", "/healthz", "/", "/v1/../x", "/%00"])


def test_objects_that_do_not_fit_are_refused(port):
    @MANY
    @given(PATHS, st.dictionaries(FIELDS, VALUES, max_size=4))
    def send(path, body):
        answer = Client(port)("POST", path, body)
        assert answer.status < 500, answer.body

    send()


def test_bodies_and_headers_of_any_bytes_are_refused(port):
    @MANY
    @given(PATHS, st.binary(max_size=200), st.binary(max_size=20))
    def send(path, body, header):
        with suppress(ValueError):  # it cannot be sent
            answer = Client(port)("POST", path, body, {"x-test": header})
            assert answer.status < 500, answer.body

    send()


def test_bytes_that_are_no_request_are_refused(port):
    start = HEAD.encode()

    @MANY
    @given(st.sampled_from([b"", start, start + b"Content-Length: "]), st.binary(max_size=100))
    def send(before, more):
        with connect(port) as connection:
            connection.sendall(before + more)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(100)
        assert not answer.startswith(b"HTTP/1.1 5"), answer

    send()


def test_requests_that_follow_from_the_description_are_answered(port):
    schemathesis = pytest.importorskip("schemathesis")
    modes = schemathesis.GenerationMode
    address = f"http://127.0.0.1:{port}"
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    for operation in schema.get_all_operations():
        for mode in (modes.POSITIVE, modes.NEGATIVE) if operation.ok().body else (modes.POSITIVE,):

            @settings(MANY, max_examples=25)
            @given(case=operation.ok().as_strategy(generation_mode=mode))
            def send(case):
                answer = case.call(timeout=SECONDS)
                own_deadline = answer.status_code == 504 and case.body["timeout"] < SECONDS
                assert answer.status_code < 500 or own_deadline, answer.text

            send()


# ------------------------------------------------------------------------------ bad clients


def test_idle_connections_block_nobody_and_are_closed(server, port):
    process, _ = server
    before = open_files(process)
    idle = [connect(port) for _ in range(1000)]
    for connection in idle[:20]:  # the start of a request is not one
        connection.sendall(HEAD.encode())
    assert translate(port, "a b").status == 200
    assert open_files(process) > before
    end = time.monotonic() + SECONDS
    while open_files(process) > before and time.monotonic() < end:
        time.sleep(IDLE / 3)
        for connection in idle[:5]:
            with suppress(ConnectionError):
                connection.sendall(b"X")  # neither is a byte now and then
    assert open_files(process) <= before
    for connection in idle:
        connection.close()


def test_a_client_that_reads_a_byte_at_a_time_blocks_nobody_and_is_closed(server, port):
    process, _ = server
    before = open_files(process)
    body = json.dumps({"texts": ["abcdefgh" * 20] * 64, "alignments": True, "beam": 1}).encode()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.settimeout(SECONDS)
        slow.connect(("127.0.0.1", port))
        slow.sendall(f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert slow.recv(1) == b"H"
        end = time.monotonic() + SECONDS
        while open_files(process) > before and time.monotonic() < end:
            assert slow.recv(1)
            assert translate(port, "a b").status == 200
            time.sleep(0.2)
    assert open_files(process) <= before


def test_a_body_of_a_gigabyte_is_answered_and_not_held(server, port):
    process, _ = server
    before = memory(process)
    for length in ("Content-Length: 1073741824", "Transfer-Encoding: chunked"):
        with connect(port) as connection:
            connection.sendall(f"{HEAD}{length}\r\n\r\n".encode())
            chunk = b"x" * 2**18
            if "chunked" in length:
                chunk = b"%x\r\n%s\r\n" % (len(chunk), chunk)
            try:
                for _ in range(2**12):
                    connection.sendall(chunk)
                answer = connection.recv(100)
                assert b" 413 " in answer
            except ConnectionError:
                pass  # it goes on after the answer, until the server closes the connection
        with connect(port) as connection:  # a client that waits for what the server says
            connection.sendall(f"{HEAD}Content-Length: 1073741824\r\n\r\n".encode())
            assert b" 413 " in connection.recv(100)
    assert memory(process) - before < 50 * 2**20


def test_a_sentence_of_a_million_characters_is_refused(server, port):
    process, _ = server
    before = memory(process)
    answer = translate(port, "a" * 1_000_000)
    assert answer.status == 422
    assert "20000 characters" in answer.json["error"]
    answer = translate(port, "a b " * 5000)
    assert answer.status == 422
    assert "1,024 are taken" in answer.json["error"]
    assert memory(process) - before < 50 * 2**20
