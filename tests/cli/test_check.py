"""`regard check`: a run and a checkpoint are checked, and the exit status tells what came of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.cli import main


@pytest.mark.parametrize("task", ["translate", "pair", "language", "image", "memory", "hard"])
def test_runs_pass(
    tiny_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str], task: str
) -> None:
    assert main(["check", str(tiny_run(task)), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["findings"] == []
    assert {"batch", "heads"} <= set(report["passed"])


def test_a_report_is_printed_and_kinds_are_left_out(
    tiny_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tiny_run("translate"))
    assert main(["check", run, "September 27, 1994", "March 3rd", "--ignore", "order"]) == 0
    out = capsys.readouterr().out
    assert "Seq2Seq: no findings\npassed   future, padding" in out
    assert "skipped  order: ignored" in out
    assert main(["check", run, "--ignore", "orders"]) == 1
    assert "ignore should be of future" in capsys.readouterr().err


def test_a_task_that_looks_at_single_nodes_is_refused(
    tiny_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tiny_run("graph"))]) == 1
    assert "models of the task graph are not called as a whole" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["FSMT", "GPT2"])
def test_a_checkpoint_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    words = ["?", "#", "The", "animal", "cross", "because", "it", "was", "A", "man", "is", "on"]
    letters = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "?")
    tokenizer = tokenizers.Tokenizer(letters)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="#", unk_token="?"
    ).save_pretrained(tmp_path)
    if name == "GPT2":
        sizes = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 32, "vocab_size": 29}
        kind = transformers.GPT2LMHeadModel
    else:
        sizes = {
            "d_model": 12, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 3,
            "decoder_attention_heads": 3, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
            "src_vocab_size": 29, "tgt_vocab_size": 29, "langs": ["en", "de"],
        }  # fmt: skip
        kind = transformers.FSMTForConditionalGeneration
    config = getattr(transformers, f"{name}Config")(**sizes, bos_token_id=1, eos_token_id=1)
    kind(config).save_pretrained(tmp_path)
    capsys.readouterr()
    assert main(["check", str(tmp_path), "--json"]) == (name == "FSMT")
    report = json.loads(capsys.readouterr().out)
    if name == "FSMT":  # makes no causal mask unless use_cache=False
        assert report["findings"][0]["kind"] == "future"
    else:
        assert report["findings"] == []
        assert {"future", "padding", "cache"} <= set(report["passed"])
