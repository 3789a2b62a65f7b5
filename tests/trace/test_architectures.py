"""A sample of the architectures of transformers gives what the table of the docs says of each."""

import pytest

from docs.tools.architectures import Row, cells, limited, read_table

pytest.importorskip("transformers", reason="needs transformers")

QUICK = ("bert", "llama", "t5", "vit")
SAMPLE = (
    "albert", "aimv2", "aria", "arcee", "bart", "beit",
    "bigbird_pegasus", "biogpt", "blenderbot", "blip_2", "bloom", "bridgetower",
    "clip", "codegen", "cohere2", "convbert", "ctrl", "deberta",
    "deberta_v2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "detr",
    "distilbert", "electra", "falcon", "flava", "fnet", "gemma2",
    "gemma3", "glm", "gpt2", "gpt_neo", "gpt_neox", "gpt_oss",
    "gptj", "granite_swa", "hubert", "kosmos2", "longformer", "mamba",
    "marian", "mixtral", "modernbert", "mpt", "opt", "phi3",
    "qwen3", "qwen3_next", "reformer", "roberta", "siglip", "swin",
    "wav2vec2", "whisper", "xlnet",
)  # fmt: skip


def test_the_sample_is_in_the_table():
    assert {*QUICK, *SAMPLE} <= set(read_table())
    assert len({*QUICK, *SAMPLE}) > 60


@pytest.mark.parametrize(
    "name",
    [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SAMPLE)],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_architecture_gives_what_the_table_says(name):
    assert Row(*cells(limited(name))) == read_table()[name]
