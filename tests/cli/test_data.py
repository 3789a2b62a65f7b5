import hashlib
import json
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from regard.cli import main
from regard.data import generate, read_dataset, read_frames, read_pairs

TATOEBA = "Go.\t가.\tCC-BY\nHi.\t안녕.\tCC-BY\n"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder on a loopback server, and the server's address."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "kor.txt").write_text(TATOEBA, encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def get(url, sha256, folder):
    return main(
        ["data", "get", "tatoeba", "--url", url, "--sha256", sha256, "--folder", str(folder)]
    )


def test_the_list_names_every_task_and_marks_what_is_here(capsys, tmp_path):
    (tmp_path / "tatoeba_ko_en").mkdir()
    (tmp_path / "tatoeba_ko_en" / "kor.txt").write_text("x")
    assert main(["data", "list", "--json", "--folder", str(tmp_path)]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"dates", "reverse", "copy", "addition", "signal"} <= set(rows)
    assert {"multi30k", "pronounce", "tatoeba"} <= set(rows)
    assert {"movie_reviews", "nsmc", "tinyshakespeare", "cora", "citeseer"} <= set(rows)
    assert rows["tatoeba"]["here"]
    assert not rows["multi30k"]["here"]
    assert main(["data", "list", "--folder", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert all(row["about"] in shown.out for row in rows.values())
    assert "regard data get multi30k" in shown.out
    assert "licence: BSD" in shown.out


def test_a_dataset_without_a_checksum_reports_that_it_reads_local_files(capsys, tmp_path):
    assert main(["data", "list", "--folder", str(tmp_path)]) == 0
    assert "reads local files, not fetched: put tatoeba_ko_en/kor.txt" in capsys.readouterr().out
    assert main(["data", "get", "tatoeba", "--folder", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "reads local files" in shown.err
    assert shown.out == ""


def test_get_fetches_checks_and_prints_the_licence(served, capsys, tmp_path):
    _, url = served
    sha256 = hashlib.sha256(TATOEBA.encode()).hexdigest()
    assert get(f"{url}/kor.txt", sha256, tmp_path) == 0
    shown = capsys.readouterr()
    assert "fetched" in shown.out
    assert "licence of tatoeba: CC BY 2.0 FR" in shown.out
    assert shown.err == f"kor.txt: 100 % of {len(TATOEBA.encode())} bytes\n"
    assert list(read_dataset("tatoeba", folder=tmp_path)) == [("안녕.", "Hi.")]
    assert get(f"{url}/kor.txt", sha256, tmp_path) == 0
    assert "is there already" in capsys.readouterr().out
    assert (tmp_path / "tatoeba_ko_en" / "kor.txt").read_text(encoding="utf-8") == TATOEBA


def test_a_corrupted_download_is_one_sentence_and_leaves_nothing(served, capsys, tmp_path):
    _, url = served
    assert get(f"{url}/kor.txt", "0" * 64, tmp_path) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "it was deleted" in shown.err.splitlines()[-1]
    assert "Traceback" not in shown.err
    assert list((tmp_path / "tatoeba_ko_en").iterdir()) == []


def test_an_absent_file_is_one_sentence(served, capsys, tmp_path):
    _, url = served
    assert get(f"{url}/absent", "0" * 64, tmp_path) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["get", "tatoba"], "did you mean 'tatoeba'"),
        (["get", "dates"], "regard data make dates"),
        (["get", "tatoeba", "--url", "http://x"], "belong together"),
        (["get", "pronounce", "--url", "http://x", "--sha256", "0"], "has 2 files"),
        (["make", "dats", "--out", "a.tsv"], "did you mean 'dates'"),
        (["make", "dates", "--out", "a.tsv", "--split", "tset"], "did you mean 'test'"),
        (["make", "dates", "--out", "a.tsv", "--count", "0"], "'--count'"),
        (["make", "signal", "--out", "a.tsv"], "npz"),
    ],
)
def test_wrong_usage_is_status_two_and_one_sentence(
    arguments, complaint, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 2
    shown = capsys.readouterr()
    assert complaint in shown.err
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


def test_make_writes_the_pairs_as_tsv(capsys, tmp_path):
    out = tmp_path / "a.tsv"
    arguments = ["--out", str(out), "--count", "31", "--seed", "5", "--split", "test"]
    assert main(["data", "make", "dates", *arguments]) == 0
    assert list(read_pairs(out)) == list(generate("dates", "test", count=31, seed=5))
    assert capsys.readouterr().out == f"{out}: 31 pairs of dates, test, seed 5\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.tsv"]


def test_make_writes_a_signal_as_frames(tmp_path):
    out = tmp_path / "a.npz"
    assert main(["data", "make", "signal", "--out", str(out), "--count", "7"]) == 0
    assert list(read_frames(out).targets) == list(generate("signal", count=7).targets)


def test_an_absent_folder_is_one_sentence(capsys, tmp_path):
    assert main(["data", "make", "dates", "--out", str(tmp_path / "no" / "a.tsv")]) == 1
    assert "does not exist" in capsys.readouterr().err
