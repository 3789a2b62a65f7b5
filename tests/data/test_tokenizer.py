import json
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.data import Pairs, load_tokenizer, train_tokenizer, train_tokenizers
from regard.data.tokenizer import KINDS

SCRIPTS = [
    "나는 학교에 갑니다.",
    unicodedata.normalize("NFD", "한글이 풀어졌다"),
    "👩‍👩‍👧‍👦 🇰🇷🇩🇪 👍🏽 ❤️ 1️⃣ 🏴󠁧󠁢󠁳󠁣󠁴󠁿",
    "שָׁלוֹם עולם, مَرْحَبًا بالعالم!",
    "नमस्ते दुनिया ไทย e\u0301 \u00e9",
    "mixed 한국어 and ελληνικά и русский 中文",
    "  two  spaces\tand\u00a0more\n",
    "<pad> <bos> <eos> <unk>",
]
LETTERS = st.characters(exclude_categories=["Cs"])
ANY = st.one_of(
    st.text(LETTERS),
    st.text(
        st.sampled_from([*"가각ᄀ ᅡ ᆨ👩💻🇰🇷👍🏽❤ab .,\n\r\t", "\u200d", "\ufe0f", "\u0301", "ש", "ָ"])
    ),
)


@pytest.mark.parametrize("kind", ["characters", "words"])
@given(texts=st.lists(ANY, min_size=1, max_size=5))
@example(texts=SCRIPTS)
def test_a_text_of_the_training_comes_back_as_it_was(kind, texts):
    tokenizer = train_tokenizer(kind, texts)
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.fixture(scope="module")
def bpe():
    return train_tokenizer("bpe", [*SCRIPTS, "low lower lowest"] * 5, size=400)


@given(text=ANY)
def test_bpe_gives_any_text_back_as_it_was(bpe, text):
    assert bpe.decode(bpe.encode(text)) == text


@pytest.mark.parametrize("text", SCRIPTS)
def test_bpe_round_trips_every_script_without_unknown_tokens(bpe, text):
    ids = bpe.encode(text)
    assert bpe.decode(ids) == text
    assert min(ids) > bpe.unk


def test_bpe_reads_nothing_in_an_empty_text(bpe):
    assert bpe.encode("") == []
    assert bpe.decode([]) == ""


def test_bpe_shows_a_character_in_the_piece_that_it_begins_in(bpe):
    assert bpe.tokens([0, *bpe.encode("low €"), 2]) == [
        "<pad>",
        "▁low",
        "▁",
        "€",
        "‥",
        "‥",
        "<eos>",
    ]


def test_bpe_shows_bytes_of_no_character_as_numbers(bpe):
    first, second, _ = bpe.encode("€")[-3:]
    assert bpe.tokens([first, first, second]) == ["<E2>", "<E2>", "<82>"]


@given(text=ANY)
@example("도쿄에 형제가 ‥있다")
def test_what_bpe_shows_is_the_text_piece_by_piece(bpe, text):
    ids = bpe.encode(text)
    shown = bpe.tokens(ids)
    spaced = (" " + text if text else "").replace(" ", "▁")
    assert "".join(shown).replace("‥", "") == spaced.replace("‥", "")
    if "‥" not in text:
        inside = [bpe._bytes(number)[0] & 0xC0 == 0x80 for number in ids]
        assert [piece.startswith("‥") for piece in shown] == inside


def test_bpe_merges_what_is_frequent(bpe):
    assert len(bpe.encode("lowest")) < len("lowest")
    assert len(bpe) <= 400


@given(st.lists(st.sampled_from(["K", "AE1", "T", "AH0", "ㅏ"]), min_size=1))
def test_phonemes_come_back_with_a_space_between(symbols):
    tokenizer = train_tokenizer("phonemes", ["K AE1 T AH0 ㅏ"])
    text = " ".join(symbols)
    assert tokenizer.tokens(tokenizer.encode(text)) == symbols
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_stored_tokenizer_is_the_same_and_is_json(kind, tmp_path):
    tokenizer = train_tokenizer(kind, SCRIPTS)
    tokenizer.save(tmp_path / "t.json")
    loaded = load_tokenizer(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["kind"] == kind
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    assert (loaded.kind, len(loaded)) == (kind, len(tokenizer))
    for text in SCRIPTS:
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(tokenizer.encode(text)) == tokenizer.decode(tokenizer.encode(text))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_special_ids_are_the_same_everywhere_and_never_in_a_text(kind):
    tokenizer = train_tokenizer(kind, SCRIPTS)
    assert (tokenizer.pad, tokenizer.bos, tokenizer.eos, tokenizer.unk) == (0, 1, 2, 3)
    ids = tokenizer.encode(SCRIPTS[-1])
    assert min(ids) > 3
    assert tokenizer.decode([1, *ids, 2, 0, 0]) == SCRIPTS[-1]
    assert tokenizer.tokens([1, 2, 0, 3]) == ["<bos>", "<eos>", "<pad>", "<unk>"]


@pytest.mark.parametrize("kind", ["characters", "words", "phonemes"])
def test_what_was_not_met_is_unknown(kind):
    tokenizer = train_tokenizer(kind, ["a b c"])
    assert tokenizer.unk in tokenizer.encode("a z")
    assert "\ufffd" in tokenizer.decode(tokenizer.encode("a z"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_id_that_there_is_not_is_refused(kind):
    tokenizer = train_tokenizer(kind, ["a b c"])
    with pytest.raises(ValueError, match=f"no id {len(tokenizer)}"):
        tokenizer.decode([len(tokenizer)])
    with pytest.raises(ValueError, match=f"no id {len(tokenizer)}"):
        tokenizer.tokens([len(tokenizer)])


def test_size_and_count_keep_the_most_frequent():
    texts = ["b b b", "a a", "c c", "d"]
    assert train_tokenizer("phonemes", texts, size=6).state() == {"pieces": ["b", "a"]}
    assert train_tokenizer("phonemes", texts, min_count=2).state() == {"pieces": ["b", "a", "c"]}


def test_joint_is_one_tokenizer_and_separate_are_two():
    pairs = Pairs(["a b"], ["c d"])
    source, target = train_tokenizers(pairs, "words", "words", joint=True)
    assert source is target
    assert source.decode(source.encode("a d")) == "a d"
    source, target = train_tokenizers(pairs, "characters", "phonemes")
    assert (source.kind, target.kind) == ("characters", "phonemes")
    assert source.unk in source.encode("c")
    with pytest.raises(ValueError, match="one kind"):
        train_tokenizers(pairs, "words", "bpe", joint=True)


def test_a_misspelt_kind_suggests_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'characters'"):
        train_tokenizer("character", [])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("not json", "not JSON"),
        ("[]", "not a tokenizer"),
        ('{"format": "regard tokenizer", "version": 99}', "version 99, this regard reads"),
        ('{"format": "regard tokenizer", "version": 2, "kind": "wrds"}', "did you mean 'words'"),
        ('{"format": "regard tokenizer", "version": 2, "kind": "words", "state": {}}', "damaged"),
        ('{"format": "regard tokenizer", "version": 2, "kind": "bpe", "state": 7}', "damaged"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused_in_a_sentence(tmp_path, content, complaint):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=complaint):
        load_tokenizer(tmp_path / "t.json")
    with pytest.raises(FileNotFoundError):
        load_tokenizer(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "change",
    [
        {"pieces": ["a"]},  # bytes are missing
        {"pieces": ["a", "a"]},
        {"pieces": ["a", 7]},
        {"pieces": {"a": 1}},
        {"merges": [["a", "b", "c"]]},
        {"merges": [["a", "zz"]]},
        {"merges": [[["a"], "b"]]},
        {"merges": [7]},
        {"merges": None},
        {"extra byte": "é한"},
    ],
)
def test_a_hostile_bpe_never_reaches_the_library(bpe, tmp_path, change):
    state = bpe.state()
    if "extra byte" in change:
        state["pieces"] = [*state["pieces"], change["extra byte"]]
    content = {"format": "regard tokenizer", "version": 2, "kind": "bpe", "state": state | change}
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="damaged: not the state of bpe"):
        load_tokenizer(tmp_path / "t.json")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"format": "\\ud800"}', "\x00" * 9])
def test_hostile_json_is_refused(tmp_path, content):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match="it is not JSON"):
        load_tokenizer(tmp_path / "t.json")


def test_a_tokenizer_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "t.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ValueError, match="too large for a tokenizer"):
        load_tokenizer(tmp_path / "t.json")


@settings(max_examples=20)
@given(st.lists(ANY, max_size=3))
def test_training_does_not_depend_on_the_order_of_texts(texts):
    forth, back = train_tokenizer("words", texts), train_tokenizer("words", texts[::-1])
    assert forth.state() == back.state()
