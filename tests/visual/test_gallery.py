"""The gallery shows every mechanism, needs no network, and treats labels as text."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import layers
from regard.cli import main
from regard.core.normalize import NORMALIZERS
from regard.visual.gallery import Exhibit, exhibits, page, write
from regard.visual.gallery.exhibit import PARTNER
from regard.visual.gallery.texts import EXHIBITS, ROOMS, Text
from regard.visual.svg import heatmap

NOT_DISTRIBUTIONS = (
    "two-co-attention",
    "several-differential-head-0",
    "efficient-gated-delta-recurrence",
    "local-local-predictive",
    "normalizers-sigmoid",
    "normalizers-sink",
)
NAMES = {  # of functions, methods and people that Korean texts write in Latin letters
    *("ALiBi", "YaRN", "RoPE", "REINFORCE", "MultiHead", "LeakyReLU"),
    *("attend", "norm", "softmax", "sigmoid", "argmax", "tanh"),
    *("general", "biased", "activated", "additive", "concat", "location", "affinity"),
    *("straight", "through"),
}


@pytest.fixture(scope="module")
def shown() -> list[Exhibit]:
    return list(exhibits())


def test_every_score_mask_normalizer_and_layer_is_shown(shown: list[Exhibit]) -> None:
    code = " ".join(exhibit.code for exhibit in shown)
    names = [n for n in regard.__all__ if isinstance(getattr(regard, n), type)]
    scores = [n for n in names if hasattr(getattr(regard, n), "forward")]
    named = {"Dot": '"dot"', "ScaledDot": '"scaled_dot"'}
    for name in scores:
        assert named.get(name, name) in code
    for word in NORMALIZERS:
        assert f'"{word}"' in code
    for word in ("causal", "window", "lengths", "segments", "attend_linear"):
        assert f"regard.{word}(" in code
    variants = {  # of what is shown
        *("Attention", "TimeAttention", "TorchMultiheadAttention"),
        *("AlignedCoAttention", "AlternatingCoAttention", "EfficientAttention"),
    }
    for name in layers.__all__:
        if name.endswith("Attention") and name not in variants:
            assert f"layers.{name}(" in code


def test_every_map_is_of_valid_weights(shown: list[Exhibit]) -> None:
    for exhibit in shown:
        assert exhibit.weights.shape == (len(exhibit.rows), len(exhibit.columns))
        assert torch.isfinite(exhibit.weights).all()
        assert exhibit.weights.min() >= 0
        assert exhibit.weights.max() <= 1 + 1e-5
        if exhibit.key not in NOT_DISTRIBUTIONS:
            sums = exhibit.weights.sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums), msg=exhibit.key)


def test_words_attend_to_their_translations(shown: list[Exhibit]) -> None:
    (dot,) = [exhibit for exhibit in shown if exhibit.key == "score-dot"]
    best = [dot.columns[j] for j in dot.weights.argmax(-1).tolist()]
    assert dict(zip(dot.rows, best, strict=True))["zone"] == "Area"
    assert dict(zip(dot.rows, best, strict=True))["accord"] == "agreement"


@pytest.mark.parametrize(
    "key", ["score-additive", "score-concat", "score-location", "several-multi-head-head-0"]
)
def test_learned_mechanisms_are_shown_trained(key: str, shown: list[Exhibit]) -> None:
    (exhibit,) = [exhibit for exhibit in shown if exhibit.key == key]
    assert exhibit.weights.argmax(-1).tolist() == list(PARTNER)
    assert exhibit.weights.amax(-1).mean() > 0.6


def test_every_exhibit_has_texts_in_both_languages_and_every_text_an_exhibit(
    shown: list[Exhibit],
) -> None:
    assert [exhibit.key for exhibit in shown] == list(EXHIBITS)
    assert {exhibit.room for exhibit in shown} == set(ROOMS)
    for exhibit in shown:
        own = exhibit.text("ko")
        words = re.findall(r"[A-Za-z]{4,}", f"{own.name} {own.formula} {own.caption}")
        assert set(words) <= NAMES, exhibit.key
        assert re.search("[가-힣]", own.caption)
        assert not re.search("[가-힣]", "".join(exhibit.text("en")))


def test_the_gallery_is_written_in_korean(
    shown: list[Exhibit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [one for one in shown if one.room in ("score", "two")]
    monkeypatch.setattr("regard.visual.gallery.exhibits", lambda: iter(some))
    assert main(["gallery", "--out", str(tmp_path), "--lang", "ko"]) == 0
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert '<html lang="ko">' in text
    assert "<h1>어텐션 갤러리</h1>" in text
    assert '<h2 id="two">두 입력, 계층, 그래프, 메모리</h2>' in text
    assert ">칸 11</text>" in text
    assert ">단어 8</text>" in text
    assert "torch의 일반 어텐션" in text
    for english in ("slot", "Each row", "wide:", "queries", "rooms"):
        assert english not in re.sub("<code>.*?</code>", "", text)
    assert "## 점수 함수" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "어텐션" in (tmp_path / "maps" / "two-co-attention.svg").read_text(encoding="utf-8")
    assert main(["gallery", "--out", str(tmp_path)]) == 0  # its own page, in another language


def test_an_unknown_language_is_refused_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gallery", "--out", str(tmp_path), "--lang", "fr"]) == 2
    assert "--lang should be en or ko, got fr" in capsys.readouterr().err


def test_labels_are_text_and_never_markup(
    shown: list[Exhibit], monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = '<img src=x onerror="alert(1)"></title><script>'
    monkeypatch.setitem(EXHIBITS, "score-evil", {"en": Text(evil, evil, evil, evil)})
    exhibit = dataclasses.replace(
        shown[0], key="score-evil", weights=torch.ones(1, 1), rows=[evil], columns=[evil]
    )
    text = page([exhibit])
    assert "<img" not in text
    assert "<script" not in text


def test_labels_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"1 row and 2 column labels do not fit .*\(3, 2\)"):
        heatmap(torch.ones(3, 2), ["a"], ["b", "c"], title="")


def test_files_are_written_and_linked(shown: list[Exhibit], tmp_path: Path) -> None:
    file = write(tmp_path / "new" / "folder", shown)
    listing = (file.parent / "README.md").read_text(encoding="utf-8")
    for exhibit in shown:
        link = f"maps/{exhibit.key}.svg"
        assert f"({link})" in listing
        assert (file.parent / link).is_file()
    assert len(list((file.parent / "maps").iterdir())) == len(shown)
    assert "glossary" not in listing


def test_the_glossary_beside_the_gallery_is_linked(shown: list[Exhibit], tmp_path: Path) -> None:
    (tmp_path / "glossary.ko.md").touch()
    file = write(tmp_path / "gallery", shown[:1])
    assert "](../glossary.ko.md)." in (file.parent / "README.md").read_text(encoding="utf-8")
    assert '<a href="../glossary.ko.md">용어집</a>' in file.read_text(encoding="utf-8")
    assert "glossary.md" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["README.md", "index.html"])
def test_a_file_of_another_program_is_not_overwritten(
    name: str, shown: list[Exhibit], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`regard gallery --out .` in the directory of another project."""
    (tmp_path / name).write_text("my own")
    assert main(["gallery", "--out", str(tmp_path)]) == 1
    assert f"{name} exists and was not written by `regard gallery`" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "my own"
    (tmp_path / name).unlink()
    assert write(tmp_path, shown[:1]) == write(tmp_path, shown[:2])  # its own it may


def test_a_folder_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.visual.gallery.exhibits", lambda: iter(()))
    (tmp_path / "file").write_text("")
    assert main(["gallery", "--out", str(tmp_path / "file" / "gallery")]) == 1
    assert capsys.readouterr().err.startswith("regard: ")


def test_the_page_opens_offline_without_errors_in_a_real_browser(
    shown: list[Exhibit], tmp_path: Path, browser: Any
) -> None:
    file = write(tmp_path, shown)
    requests: list[str] = []
    errors: list[str] = []
    context = browser.new_context(offline=True, viewport={"width": 400, "height": 800})
    tab = context.new_page()
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("console", lambda message: errors.append(message.text))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(file.as_uri())
    assert tab.locator("article").count() == len(shown)
    assert tab.locator("svg[role=img] > title").count() == len(shown)
    wide = tab.evaluate("document.documentElement.scrollWidth")
    context.close()
    assert requests == [file.as_uri()]
    assert errors == []
    assert wide <= 400  # nothing overflows on a phone
