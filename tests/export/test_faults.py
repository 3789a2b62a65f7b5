"""An export that is killed or damaged is never loaded half."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.export.folder import read_export
from regard.system.files import UNFINISHED
from regard.tasks.export import export

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")

KILLS = 10
FLIPS = 1000
TEXTS = ["march 3rd, 2031", "1 may 1999", "tuesday, june 5, 1984"]
SECONDS = 60  # until a process must have ended


@pytest.mark.slow
def test_a_killed_export_leaves_all_or_nothing(processes, transformer_run, tmp_path):
    out = tmp_path / "exported"
    expected = [one.text for one in regard.load(transformer_run).translate(TEXTS, beam=1)]

    def begin():
        arguments = (transformer_run, "ctranslate2", out)
        child = processes.Process(target=export, args=arguments, kwargs={"inputs": TEXTS})
        child.start()
        return child, time.monotonic()

    def translations(folder):
        return [one.text for one in regard.load(folder).translate(TEXTS, beam=1)]

    for _ in range(2):  # the first starts the server of processes
        shutil.rmtree(out, ignore_errors=True)
        child, start = begin()
        child.join(SECONDS)
        assert child.exitcode == 0
    whole, draw, complete = time.monotonic() - start, random.Random(1), 0
    for _ in range(KILLS):
        shutil.rmtree(out, ignore_errors=True)
        child, _ = begin()
        time.sleep(draw.uniform(0, 1.2 * whole))
        child.kill()
        child.join(SECONDS)
        assert child.exitcode in (-signal.SIGKILL, 0)
        if out.exists():
            complete += 1
            assert translations(out) == expected
        for left in tmp_path.glob(f"{UNFINISHED}*"):
            try:  # a complete one may not have its name yet, half of one is an error
                assert translations(left) == expected
            except (ValueError, FileNotFoundError):
                assert not out.exists()
    assert complete < KILLS
    shutil.rmtree(out, ignore_errors=True)
    export(transformer_run, "ctranslate2", out, inputs=TEXTS)  # what was left is no hindrance
    assert os.listdir(tmp_path) == ["exported"]


@pytest.mark.slow
def test_flipped_bits_in_any_file_are_found(exported, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(exported, folder)
    rng = np.random.default_rng(1)
    names = sorted(name for name in os.listdir(folder) if name != "README.md")
    for number in range(FLIPS):
        path = folder / names[number % len(names)]
        content = path.read_bytes()
        changed = bytearray(content)
        changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        with pytest.raises((ValueError, FileNotFoundError)):
            regard.load(folder)
        path.write_bytes(content)
    assert regard.load(folder).translate(TEXTS)


@pytest.mark.parametrize("name", ["model.bin", "manifest.json", "export.json"])
def test_a_file_that_ends_early_is_found(exported, tmp_path, name):
    folder = tmp_path / "damaged"
    shutil.copytree(exported, folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises((ValueError, FileNotFoundError)):
        regard.load(folder)


def test_an_export_of_another_version_is_to_be_made_again(exported, tmp_path):
    folder = Path(shutil.copytree(exported, tmp_path / "old"))
    about = json.loads((folder / "export.json").read_text())
    (folder / "export.json").write_text(json.dumps(about | {"format": 7}))
    with pytest.raises(ValueError, match=r"format 7, .* or export the run again$"):
        read_export(folder)
