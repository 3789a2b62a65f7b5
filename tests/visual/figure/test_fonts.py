"""Labels are drawn in any script after `pip install` alone; what no font has is reported once."""

import shutil
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import font_manager
from matplotlib.image import imread

from regard.visual.figure import fonts, heatmap
from regard.visual.figure.canvas import figure, save
from regard.visual.figure.fonts import choose_fonts

CUNEIFORM = "\U00012000"


@pytest.fixture
def system_fonts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of an imaginary system, at first none; matplotlib's cache has its own alone."""
    files: list[str] = []
    own = [
        f
        for f in font_manager.fontManager.ttflist
        if f.fname.startswith(matplotlib.get_data_path())
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: files)
    monkeypatch.setattr(fonts, "_reported", set())
    monkeypatch.setattr(fonts, "_unreported", set())
    return files


def pixels(label: str, path: Path) -> np.ndarray:
    heatmap(torch.ones(1, 1), [label], ["k"], path)
    return imread(path)


@pytest.mark.parametrize("text", ["고양이", "日本語の猫ネコ", "سلام", "שלום", "ελληνικά", "漢字"])
def test_a_script_is_drawn_without_system_fonts(
    text: str, system_fonts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    families, (label,) = choose_fonts([text])
    assert families[0] == "DejaVu Sans"
    assert label == text
    drawn = pixels(text, tmp_path / "a.png")
    boxes = pixels("□" * len(text), tmp_path / "b.png")
    assert drawn.shape != boxes.shape or (drawn != boxes).any()
    assert capsys.readouterr().err == ""


def test_packages_with_fonts_are_not_imported(system_fonts: list[str]) -> None:
    """Importing them changes the settings of matplotlib."""
    choose_fonts(["고양이", "ネコ"])
    assert not sys.modules.keys() & fonts.PACKAGED.keys()


def test_a_font_that_is_newer_than_the_cache_is_found_and_a_removed_one_is_not_used(
    system_fonts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (korean,) = [file for file in fonts._packaged_fonts() if "Nanum" in file]
    with monkeypatch.context() as patch:
        patch.setattr(fonts, "_packaged_fonts", list)
        assert choose_fonts(["고양이"]).labels == ["□□□"]
        (tmp_path / "damaged.ttf").write_bytes(b"not a font")
        system_fonts += [str(tmp_path / "damaged.ttf"), shutil.copy(korean, tmp_path)]
        assert choose_fonts(["고양이"]) == (["DejaVu Sans", "NanumGothic"], ["고양이"])
        Path(system_fonts.pop()).unlink()
        assert choose_fonts(["고양이"]).labels == ["□□□"]
    # the packaged font of the same name is used in place of the removed one, bold or not
    drawn = figure(2, 1)
    families, (label,) = choose_fonts(["고양이"])
    drawn.text(0, 0, label, fontfamily=families, fontweight="bold")
    save(drawn, tmp_path / "a.png")
    assert caplog.text == ""


def test_a_system_font_with_more_characters_is_preferred(system_fonts: list[str]) -> None:
    (korean,) = [file for file in fonts._packaged_fonts() if "Nanum" in file]
    font_manager.fontManager.addfont(korean)
    entry = font_manager.fontManager.ttflist[-1]
    noto = font_manager.FontEntry(korean, entry.index, "Noto Sans CJK KR", weight=400)
    font_manager.fontManager.ttflist.append(noto)
    assert choose_fonts(["고양이"]).families == ["DejaVu Sans", "Noto Sans CJK KR"]


def test_missing_characters_are_one_sentence_without_a_path(
    system_fonts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = [f"a{CUNEIFORM}b", "👩‍💻!"]
    assert choose_fonts(labels).labels == ["a□b", "[woman, personal computer]!"]
    for _ in range(2):
        heatmap(torch.ones(1, 2), [CUNEIFORM], ["👩‍💻", "c"], tmp_path / "a.png")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"No installed font has {CUNEIFORM} 👩 💻: install one")
    assert "apt install fonts-noto-core fonts-symbola" in line
    assert "/" not in line
