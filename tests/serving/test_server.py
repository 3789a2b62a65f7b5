"""A server answers as its model does, refuses what is wrong, and tells how it is."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import regard
from regard.data import train_tokenizer
from regard.serving import Limits


def test_translations_are_those_of_the_model(serve, translator):
    client = serve(translator)
    texts = ["abc", "가나", ""]
    given = {"texts": texts, "beam": 3, "n_best": 2, "alignments": True}
    answer = client.post("/v1/translate", json=given)
    assert answer.status_code == 200, answer.text
    expected = translator.predict(texts, beam=3, n_best=2, return_map=True)
    for found, own in zip(answer.json()["translations"], expected, strict=True):
        assert found["source"] == own[0].source
        for hypothesis, one in zip(found["hypotheses"], own, strict=True):
            assert hypothesis["text"] == one.text
            assert hypothesis["tokens"] == one.tokens
            assert hypothesis["score"] == pytest.approx(one.score, abs=1e-4)
            for row, weights in zip(hypothesis["alignment"], one.map.tolist(), strict=True):
                assert row == pytest.approx(weights, abs=1e-5)


def test_a_prefix_begins_the_translation_and_a_seed_decides_samples(serve, translator):
    client = serve(translator)
    answer = client.post("/v1/translate", json={"texts": ["abc"], "prefix": "가"}).json()
    assert answer["translations"][0]["hypotheses"][0]["text"].startswith("가")
    given = {"texts": ["abc"], "sampling": {"seed": 3, "top_k": 5}, "n_best": 2}
    first, second = (client.post("/v1/translate", json=given).json() for _ in range(2))
    own = translator.predict(["abc"], n_best=2, sampling={"seed": 3, "top_k": 5})[0]
    assert first == second
    found = first["translations"][0]["hypotheses"]
    assert [each["text"] for each in found] == [one.text for one in own]


def events(response):
    for block in response.read().decode().split("\n\n"):
        if block.startswith("event: "):
            name, data = block.split("\n", 1)
            yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_stream_sends_tokens_and_then_the_translation(serve, translator):
    client = serve(translator)
    given = {"texts": ["abc"], "beam": 1, "stream": True}
    with client.stream("POST", "/v1/translate", json=given) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        sent = list(events(response))
    (own,) = translator.predict(["abc"], beam=1)
    assert [data["token"] for name, data in sent if name == "token"] == own.tokens
    assert sent[-1][0] == "translation"
    assert sent[-1][1]["hypotheses"][0]["text"] == own.text


@pytest.mark.parametrize("task", ["classify", "pair", "memory", "language", "image", "graph"])
def test_predictions_of_every_task_are_those_of_the_predictor(serve, tiny_run, task):
    predictor = regard.load(tiny_run(task))
    lines = {
        "classify": ["a film"],
        "pair": [predictor.examples(1)[0] if task == "pair" else ""],
        "memory": [{"size": 2}],
        "language": ["a"],
        "image": [{"pixels": [[0] * 28] * 28}],
        "graph": ["document 1"],
    }
    inputs = lines[task]
    if task == "pair":
        left, right = inputs[0]
        names = right.names() if hasattr(right, "names") else right
        columns = len(right.cells[0]) if hasattr(right, "cells") else 0
        if columns:
            rows = [names[i : i + columns] for i in range(0, len(names), columns)]
            right = [[thing if " " in thing else "" for thing in row] for row in rows]
        inputs = [{"left": left, "right": right}]
    if task == "image":
        inputs = [{"pixels": predictor.examples(1)[0].tolist()}]
    client = serve(predictor)
    more = {"length": 5, "temperature": 0.0} if task == "language" else {}
    answer = client.post("/v1/predict", json={"inputs": inputs, **more})
    assert answer.status_code == 200, answer.text
    own = predictor.predict([predictor.parse(one) for one in inputs], **more)
    expected = json.loads(json.dumps([predictor.to_json(one) for one in own]))
    (found,) = answer.json()["predictions"]
    assert found.keys() == expected[0].keys()
    for key, value in found.items():
        if isinstance(value, dict):
            assert value == pytest.approx(expected[0][key], abs=1e-5)
        else:
            assert value == expected[0][key]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/translate", {"texts": []}, 422),
        ("/v1/translate", {"texts": ["a"] * 65}, 422),
        ("/v1/translate", {"texts": ["a" * 1_000_000]}, 422),
        ("/v1/translate", {"texts": ["a"], "beam": 2, "n_best": 3}, 422),
        ("/v1/translate", {"texts": ["a"], "beam": 10**9}, 422),
        ("/v1/translate", {"texts": ["a"], "bean": 3}, 422),
        ("/v1/translate", {"texts": ["a", "b"], "stream": True, "beam": 1}, 422),
        ("/v1/translate", {"texts": ["a"], "stream": True, "beam": 5}, 422),
        ("/v1/translate", {"texts": ["a"], "prefix": "a" * 900}, 422),
        ("/v1/predict", {"inputs": ["a"], "count": 3}, 422),
        ("/v1/predict", {"inputs": [{"sauce": 1}]}, 422),
        ("/v1/nothing", {}, 404),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(serve, translator, path, body, status):
    answer = serve(translator).post(path, json=body)
    assert answer.status_code == status, answer.text
    assert "\n" not in answer.json()["error"]


def test_an_answer_with_too_many_weights_is_refused_before_it_is_computed(serve, translator):
    client = serve(translator)
    largest = {"texts": ["abcdefgh" * 128] * 64, "beam": 20, "n_best": 20, "alignments": True}
    answer = client.post("/v1/translate", json=largest)
    # 20 translations of 64 texts of 1,024 tokens, each of at most 2 · 1,024 + 50 tokens
    most = f"{20 * 64 * 1024 * (2 * 1024 + 50):,}"
    assert answer.status_code == 422
    assert answer.json() == {
        "error": f"the alignments may have {most} weights, and an answer has at most 4,194,304: "
        "send fewer or shorter texts, ask for a smaller n_best, or leave out alignments",
        "field": "alignments",
    }
    assert "regard_batch_requests_count 0.0" in client.get("/metrics").text


@pytest.mark.parametrize("stream", [False, True])
def test_weights_are_counted_to_the_last(serve, translator, stream):
    texts, n_best = (["abcde"], 1) if stream else (["abcde", "가나다", ""], 3)
    cells = n_best * sum(len(text) * (2 * len(text) + 50) for text in texts)
    given = {"texts": texts, "beam": n_best, "n_best": n_best, "stream": stream}
    for limit, alignments, status in (
        (cells, True, 200),
        (cells - 1, True, 422),
        (cells - 1, False, 200),
    ):
        client = serve(translator, limits=Limits(cells=limit))
        answer = client.post("/v1/translate", json={**given, "alignments": alignments})
        assert answer.status_code == status, answer.text
        assert (f"{cells:,} weights" in answer.text) == (status == 422)


def test_health_does_not_wait_behind_work(serve, translator):
    client = serve(translator)
    begun, go_on = threading.Semaphore(0), threading.Event()

    def parse(text):
        begun.release()
        go_on.wait(20)
        return text

    translator.parse = parse
    with ThreadPoolExecutor(60) as pool:  # more than the threads of the event loop
        given = {"texts": ["a"], "beam": 1}
        answers = [pool.submit(client.post, "/v1/translate", json=given) for _ in range(60)]
        assert begun.acquire(timeout=20)
        try:
            for path in ("/healthz", "/readyz", "/metrics"):
                assert client.get(path, timeout=10).status_code == 200
        finally:
            go_on.set()
        assert {answer.result().status_code for answer in answers} == {200}


@pytest.mark.parametrize(
    ("task", "input", "words"),
    [
        ("classify", {"text": "a" * 20_001}, "20,001 characters"),
        ("classify", {"text": "a " * 1025}, "1,025 tokens"),
        ("translate", {"source": "a" * 20_001}, "20,001 characters"),
        ("pair", {"left": "a " * 1025, "right": [[""] * 3] * 3}, "tokens"),
        ("pair", {"left": "a", "right": "b" * 30_000}, "a scene is three rows"),
    ],
)
def test_a_text_inside_an_object_is_limited_too(serve, tiny_run, task, input, words):
    answer = serve(regard.load(tiny_run(task))).post("/v1/predict", json={"inputs": [input]})
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    assert len(answer.json()["error"]) < 1000


def test_frames_are_limited_as_tokens_are(serve):
    from regard.models import build
    from regard.tasks import Translator

    letters = train_tokenizer("characters", ["ab"])
    model = build("luong", "tiny", frames=3, target_vocabulary=len(letters), hidden=8)
    client = serve(Translator(model, None, letters))
    for length, status in ((1024, 200), (1025, 422)):
        answer = client.post("/v1/predict", json={"inputs": [{"source": [[0, 1, 2]] * length}]})
        assert answer.status_code == status, answer.text


def test_a_file_of_the_server_is_no_image(serve, tiny_run):
    client = serve(regard.load(tiny_run("image")))
    answer = client.post("/v1/predict", json={"inputs": ["/etc/passwd"]})
    assert (answer.status_code, "pixels" in answer.json()["error"]) == (422, True)


def test_a_token_is_needed_where_there_is_one(serve, translator):
    client = serve(translator, token="secret")
    given = {"texts": ["a"]}
    assert client.post("/v1/translate", json=given).status_code == 401
    assert client.get("/metrics").status_code == 401
    assert client.get("/healthz").status_code == 200
    headers = {"Authorization": "Bearer secret"}
    assert client.post("/v1/translate", json=given, headers=headers).status_code == 200


def test_another_host_is_refused(serve, translator):
    answer = serve(translator).get("/healthz", headers={"Host": "evil.example"})
    assert answer.status_code == 421


def test_the_server_tells_how_it_is(serve, translator):
    client = serve(translator)
    assert client.get("/readyz").json()["engine"] == "torch"
    client.post("/v1/translate", json={"texts": ["abc", "d"]})
    client.get("/unknown")
    text = client.get("/metrics").text
    assert 'regard_requests_total{path="/v1/translate",status="200"} 1.0' in text
    assert 'regard_requests_total{path="other",status="404"} 1.0' in text
    assert "regard_batch_requests_count 1.0" in text
    assert "regard_tokens_total 4.0" in text


class Slow:
    """A translator that takes its time, until it is told to go on."""

    def __init__(self, translator):
        self.predict_now = translator.predict
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, inputs, **options):
        self.begun.set()
        self.go_on.wait(20)
        return self.predict_now(inputs, **options)


def test_a_full_queue_answers_429_and_a_late_answer_504(serve, translator):
    client = serve(translator, limits=Limits(waiting=1, wait=0.0))
    translator.predict = slow = Slow(translator)
    found = []

    def send(timeout):
        given = {"texts": ["a"], "timeout": timeout}
        found.append(client.post("/v1/translate", json=given).status_code)

    def wait(line):
        while line not in client.get("/metrics").text:
            time.sleep(0.01)

    threads = [threading.Thread(target=send, args=(seconds,)) for seconds in (2.0, 20.0)]
    threads[0].start()
    slow.begun.wait(10)
    threads[1].start()
    wait("regard_waiting_requests 1.0")
    answer = client.post("/v1/translate", json={"texts": ["a"]})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert client.get("/readyz").status_code == 503
    threads[0].join(10)
    assert found == [504]
    slow.go_on.set()
    threads[1].join(10)
    assert found == [504, 200]


def test_a_client_that_goes_is_not_computed_for(serve, translator):
    client = serve(translator, limits=Limits(wait=0.0))
    translator.predict = slow = Slow(translator)
    with pytest.raises(httpx.ReadTimeout):
        client.post("/v1/translate", json={"texts": ["a" * 7]}, timeout=0.2)
    with pytest.raises(httpx.ReadTimeout):
        client.post("/v1/translate", json={"texts": ["a" * 11]}, timeout=0.2)
    time.sleep(0.2)
    slow.go_on.set()
    assert client.post("/v1/translate", json={"texts": ["abc"]}).status_code == 200
    assert "regard_tokens_total 3.0" in client.get("/metrics").text


def test_the_description_fits_and_has_examples(serve, translator):
    client = serve(translator)
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/v1/predict", "/v1/translate", "/healthz", "/readyz", "/metrics",
    }  # fmt: skip
    post = described["paths"]["/v1/translate"]["post"]["requestBody"]["content"]
    example = post["application/json"]["example"]
    assert client.post("/v1/translate", json=example).status_code == 200


def test_requests_are_logged_without_what_users_sent(serve, translator, caplog):
    with caplog.at_level("INFO", logger="regard.serving"):
        serve(translator).post("/v1/translate", json={"texts": ["abcabcabc"]})
    fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert fields[0]["path"] == "/v1/translate"
    assert fields[0]["status"] == 200
    assert "abcabcabc" not in caplog.text + str(fields)


def test_a_half_request_blocks_nobody(serve, translator):
    client = serve(translator)
    port = client.base_url.port
    half = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for connection in half:
        connection.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert client.post("/v1/translate", json={"texts": ["a"]}).status_code == 200
    for connection in half:
        connection.close()
