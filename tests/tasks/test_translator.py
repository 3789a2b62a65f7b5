"""The translator: searches, samples, maps, prefixes, and traces of every kind of model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import regard
from regard.data import generate, train_tokenizer
from regard.decoding import Limits
from regard.evaluation import consensus
from regard.tasks import Translation, Translator
from regard.tasks.variants import build_model


@pytest.fixture
def run(copy_run):
    return copy_run


def test_a_trained_run_is_loaded_and_translates_as_its_model_did(run):
    translator = regard.load(run)
    assert isinstance(translator, Translator)
    first, second = translator.translate(["abc", "hello"], return_map=True)
    assert isinstance(first, Translation)
    assert first.map.shape == (len(first.tokens), 3)
    assert second.source == list("hello")
    torch.testing.assert_close(second.map.sum(-1), torch.ones(len(second.tokens)))
    assert regard.load(run).translate(["hello"])[0].text == second.text


def test_the_order_of_texts_is_kept_and_empty_ones_stay_empty(run):
    translator = regard.load(run)
    texts = ["abcdefgh", "", "a", "abcd"]
    together = translator.translate(texts, return_map=True)
    assert together[1].text == ""
    assert together[1].map.shape == (0, 0)
    alone = [translator.translate([text])[0].text for text in texts]
    assert [one.text for one in together] == alone
    assert translator.translate([]) == []


def test_a_beam_returns_n_best_translations_the_best_first(run):
    translator = regard.load(run)
    (found,) = translator.translate(["abc"], beam=3, n_best=3, return_map=True)
    assert len({one.text for one in found}) == 3
    assert all(one.map.shape == (len(one.tokens), 3) for one in found)
    (best,) = translator.translate(["abc"], beam=3)
    assert best.text == found[0].text
    assert best.score == pytest.approx(found[0].score)


def test_the_map_is_none_without_return_map(run):
    assert regard.load(run).translate(["abc"])[0].map is None


def test_the_map_of_a_transformer_is_the_average_of_its_heads():
    letters = train_tokenizer("characters", ["abc"])
    table = {"kind": "transformer", "dim": 6, "heads": 3, "hidden": 5, "layers": 2}
    translator = Translator(build_model(table, letters, letters), letters, letters)
    (one,) = translator.translate(["cabba"], return_map=True)
    assert one.map.shape == (len(one.tokens), 5)
    whole = torch.stack([head for map in one.maps.values() for head in map])
    assert len(whole) == 6
    torch.testing.assert_close(one.map, whole.mean(0))


def test_a_model_without_attention_has_a_map_of_zeros():
    letters = train_tokenizer("characters", ["abc"])
    translator = Translator(build_model({"kind": "plain"}, letters, letters), letters, letters)
    (one,) = translator.translate(["cab"], return_map=True)
    assert not one.map.any()


def test_frames_are_translated():
    target = train_tokenizer("phonemes", ["a b c"])
    translator = Translator(build_model({"frames": 12}, None, target), None, target)
    frames = [source for source, _ in generate("signal", count=3)]
    found = translator.translate(frames, return_map=True)
    assert [one.map.shape[1] for one in found] == [len(source) for source in frames]
    with pytest.raises(ValueError, match=r"frames should be \(length, width\)"):
        translator.translate([np.zeros(3)])


def test_wrong_calls_are_clear_errors(run):
    translator = regard.load(run)
    with pytest.raises(TypeError, match="a list of texts"):
        translator.translate("abc")
    with pytest.raises(TypeError, match="reads texts, got int"):
        translator.translate([3])
    for options, sentence in {
        (("n_best", 7),): "n_best 7 needs a beam of 7 or more",
        (("beam", 2), ("n_best", 3)): "n_best 3 needs a beam of 3 or more",
        (("beam", 0),): "beam should be greater than or equal to 1, got 0",
        (("penalty", -1.0),): "penalty should be greater than or equal to 0",
        (("mbr", 1),): "mbr should be greater than or equal to 2",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            translator.translate(["abc"], **dict(options))
    for prefix in ("a", ["a", "b"]):
        with pytest.raises(ValueError, match="prefix should be a list of 1, one for each text"):
            translator.translate(["abc"], prefix=prefix)


def test_loading_what_is_not_a_run_is_a_clear_error(run, tmp_path):
    with pytest.raises(FileNotFoundError, match="it does not exist"):
        regard.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"no config\.toml"):
        regard.load(tmp_path)
    (tmp_path / "config.toml").write_text("task = ")
    with pytest.raises(FileNotFoundError, match="it is a file"):
        regard.load(tmp_path / "config.toml")
    with pytest.raises(ValueError, match="is not TOML"):
        regard.load(tmp_path)
    (tmp_path / "config.toml").write_text("task = 'translat'\n[training]\nsteps = 7\n")
    with pytest.raises(ValueError, match="did you mean 'translate'"):
        regard.load(tmp_path)
    (tmp_path / "config.toml").write_bytes((run / "config.toml").read_bytes())
    with pytest.raises(FileNotFoundError, match="tokenizer"):
        regard.load(tmp_path)
    for file in run.glob("tokenizer*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors yet"):
        regard.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:-7])
    with pytest.raises(ValueError, match="damaged"):
        regard.load(tmp_path)


def test_a_prefix_begins_the_translation(run):
    translator = regard.load(run)
    for options in ({}, {"beam": 3}, {"sampling": {"seed": 1}}):
        first, second = translator.translate(["abc", "hello"], prefix=["he", ""], **options)
        assert first.text.startswith("he")
        assert second.text == translator.translate(["hello"], first=1, **options)[0].text


def test_draws_depend_on_the_seed_and_the_number_of_a_text(run):
    translator = regard.load(run)
    sampling = {"seed": 7, "temperature": 2.0}
    both = translator.translate(["abcdef"] * 2, sampling=sampling)
    assert both[0].text != both[1].text
    assert translator.translate(["abcdef"], sampling=sampling, first=1)[0].text == both[1].text
    (several,) = translator.translate(["abcdef"], sampling=sampling, n_best=5)
    assert len({one.text for one in several}) > 1


def test_mbr_returns_the_sample_that_the_others_agree_with(run):
    translator = regard.load(run)
    texts, sampling = ["abcdef", "hello", ""], {"seed": 3, "temperature": 1.5}
    drawn = translator.translate(texts, sampling=sampling, n_best=7)
    best = translator.translate(texts, sampling=sampling, mbr=7, return_map=True)
    for samples, one in zip(drawn, best, strict=True):
        chosen = samples[consensus([sample.text for sample in samples])]
        assert (one.text, one.score) == (chosen.text, chosen.score)
        assert one.map.shape == (len(one.tokens), len(one.source))
    assert len({sample.text for sample in drawn[0]}) > 1


def test_mbr_samples_with_a_temperature_of_its_own(run):
    translator = regard.load(run)
    texts = ["abcdef", "hello", "xyzzy", "qwerty"]
    own, same, other = (
        [one.text for one in translator.translate(texts, mbr=5, sampling=sampling)]
        for sampling in (None, {"temperature": 0.7}, {"temperature": 1.0})
    )
    assert own == same
    assert own != other  # or the test could not fail


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mbr": 5, "beam": 2}, "beam and penalty are for searching, not for samples"),
        ({"mbr": 5, "penalty": 0.0}, "beam and penalty are for searching, not for samples"),
        ({"mbr": 5, "n_best": 2}, "mbr chooses one translation: leave out n_best"),
    ],
)
def test_mbr_needs_several_samples_and_nothing_else(run, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        regard.load(run).translate(["abc"], **options)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_an_unknown_token_is_marked_or_copied_from_the_largest_weight(kind):
    texts = ["red green blue"]
    tokenizer = train_tokenizer(kind, texts)
    torch.manual_seed(5)
    model = build_model({"kind": "luong", "preset": "tiny"}, tokenizer, tokenizer)
    with torch.no_grad():
        model.output.bias[tokenizer.unk] += 50.0  # it knows nothing else
    translator = Translator(model, tokenizer, tokenizer)
    source = "green ZEBRA"
    (marked,) = translator.translate([source], limits=Limits(1.0, 0), return_map=True)
    assert set(marked.text.replace(" ", "")) == {"\N{REPLACEMENT CHARACTER}"}
    (copied,) = translator.translate([source], limits=Limits(1.0, 0), copy_unknown=True)
    assert copied.map is None
    pieces = tokenizer.split(source)
    looked = [pieces[place] for place in marked.map.argmax(-1).tolist()]
    assert copied.text == tokenizer.join(looked)
    assert copied.score == pytest.approx(marked.score)


def test_copying_is_refused_at_once_where_tokens_are_not_cut_from_the_text():
    tokenizer = train_tokenizer("bpe", ["red green blue"])
    model = build_model({"kind": "luong", "preset": "tiny"}, tokenizer, tokenizer)
    with pytest.raises(ValueError, match="copy_unknown needs tokenizers of characters"):
        Translator(model, tokenizer, tokenizer).translate(["red"], copy_unknown=True)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_model_whose_weights_are_not_numbers_is_refused(beam):
    letters = train_tokenizer("characters", ["abc"])
    model = build_model({"kind": "luong", "preset": "tiny"}, letters, letters)
    with torch.no_grad():
        model.output.weight[5] = torch.nan
    with pytest.raises(ValueError, match="its weights hold NaN"):
        Translator(model, letters, letters).translate(["", "cab"], beam=beam)


def test_draws_with_a_beam_are_refused(run):
    with pytest.raises(ValueError, match="beam and penalty are for searching, not for samples"):
        regard.load(run).translate(["abc"], beam=3, sampling={})


def untrained(kind: str, **options: object) -> Translator:
    torch.manual_seed(0)
    letters = train_tokenizer("characters", ["abcdefg"])
    model = build_model({"kind": kind, "preset": "tiny", **options}, letters, letters)
    return Translator(model, letters, letters)


@pytest.mark.parametrize("kind", ["bahdanau", "luong", "transformer"])
@pytest.mark.parametrize("beam", [1, 3])
def test_the_maps_are_those_of_the_translation(kind: str, beam: int) -> None:
    model = untrained(kind)
    (found,) = model.translate(["cabbage"], beam=beam, return_map=True)
    trace = model.trace("cabbage", beam=beam)
    assert trace.about["translation"] == found.text
    assert trace.tokens["source"] == list("cabbage")
    assert trace.tokens["target"] == found.tokens
    assert trace.tokens["prefix"][1:] == found.tokens[:-1]
    crossing = [c for c in trace.calls if (c.queries, c.keys) == ("target", "source")]
    mean = torch.cat([call.map.dense() for call in crossing]).mean(0)
    torch.testing.assert_close(mean, found.map, atol=1e-4, rtol=1e-3)
    for call in trace.calls:
        assert call.inputs is not None
        trace.check(call)


def test_the_likeliest_next_tokens_are_kept() -> None:
    trace = untrained("luong").trace("fade", beam=1)
    rows = trace.about["outputs"]["target"]
    assert len(rows) == len(trace.tokens["target"])
    for row, token in zip(rows, trace.tokens["target"], strict=True):
        shares = [share for _, share, _ in row]
        assert shares == sorted(shares, reverse=True)
        assert row[0][0] == token  # greedy


def test_a_search_goes_on_from_ids_and_a_trace_takes_what_it_found() -> None:
    model = untrained("luong")
    ((best,), _) = model.search(["fade", "bad"], beam=1)
    other = next(i for i in range(4, len(model.target)) if i != best.tokens[0])
    (found,) = model.search(["fade"], beam=3, n_best=2, prefixes=[[other]])
    assert all(hypothesis.tokens[0] == other for hypothesis in found)
    assert found[0].score >= found[1].score
    trace = model.trace("fade", written=found[0])
    assert trace.tokens["target"] == model.target.tokens(found[0].tokens)
    greedy = model.trace("fade", beam=1).about
    assert [row[0][2] for row in greedy["outputs"]["target"]] == list(best.tokens)
    assert sum(greedy["log_probabilities"]["target"]) == pytest.approx(best.score, abs=1e-3)


def test_an_empty_text_is_refused() -> None:
    with pytest.raises(ValueError, match="empty text"):
        untrained("luong").trace("")


def test_checkpoints_show_the_same_words_with_other_weights(tmp_path: Path) -> None:
    model = untrained("luong")
    own = {name: tensor.clone() for name, tensor in model.model.state_dict().items()}
    for step in (5, 11):
        folder = tmp_path / "checkpoints" / f"step-{step}"
        folder.mkdir(parents=True)
        tensors = {name: tensor * step / 20 for name, tensor in own.items()}
        save_file(tensors, folder / "model.safetensors")
    traces = model.trace_checkpoints(tmp_path, "bead")
    assert list(traces) == ["step 5", "step 11", "final"]
    maps = [trace.calls[0].map.dense() for trace in traces.values()]
    assert len({trace.about["translation"] for trace in traces.values()}) == 1
    assert not torch.allclose(maps[0], maps[2])
    torch.testing.assert_close(maps[2], model.trace("bead").calls[0].map.dense())
    with pytest.raises(FileNotFoundError, match="no checkpoints in"):
        model.trace_checkpoints(tmp_path / "none", "bead")
