"""Small checkpoints of Hugging Face transformers, with random weights and real tokenizers."""

from pathlib import Path

import torch

WORDS = "the animal didn't cross the street because it was too tired . 동물이 길을 건너지 않았다"
SENTENCES = [
    WORDS,
    "it was the street",
    "because the animal was tired",
    "나는 길을 건너지 않았다",
] * 20
KINDS = ("encoder", "classifier", "masked", "causal", "bytes", "encoder_decoder", "image")


def word_pieces():
    """A tokenizer like BERT's."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertTokenizer

    words = BertWordPieceTokenizer(strip_accents=False)
    words.train_from_iterator(SENTENCES, vocab_size=250, min_frequency=1, show_progress=False)
    return BertTokenizer(vocab=words.get_vocab())


def byte_level():
    """A tokenizer like GPT-2's."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    pieces = ByteLevelBPETokenizer()
    pieces.train_from_iterator(
        SENTENCES, vocab_size=300, min_frequency=2, show_progress=False,
        special_tokens=["<|endoftext|>"],
    )  # fmt: skip
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces._tokenizer, bos_token=end, eos_token=end, pad_token=end
    )


def unigram():
    """A tokenizer like T5's: SentencePiece with byte fallback."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
    from tokenizers.trainers import UnigramTrainer
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>"]
    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer = pre_tokenizers.Metaspace()
    pieces.decoder = decoders.Metaspace()
    pieces.train_from_iterator(
        SENTENCES,
        UnigramTrainer(
            vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False
        ),
    )
    pieces.add_special_tokens([AddedToken(each, special=True) for each in special])
    pieces.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def write_checkpoint(kind: str, folder: Path, seed: int = 1) -> Path:
    """Write a checkpoint with random weights large enough to attend to something."""
    import transformers as t

    bert = {
        "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
        "intermediate_size": 16,
    }  # fmt: skip
    names = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    torch.manual_seed(seed)
    if kind in ("encoder", "classifier", "masked"):
        reader = word_pieces()
        config = t.BertConfig(
            vocab_size=len(reader), max_position_embeddings=40, **bert,
            **(names if kind == "classifier" else {}),
        )  # fmt: skip
        classes = {
            "encoder": t.BertModel,
            "classifier": t.BertForSequenceClassification,
            "masked": t.BertForMaskedLM,
        }
        model = classes[kind](config)
    elif kind == "causal":
        reader = byte_level()
        ids = {"bos_token_id": 0, "eos_token_id": 0}
        model = t.GPT2LMHeadModel(
            t.GPT2Config(
                vocab_size=len(reader), n_embd=12, n_layer=2, n_head=3, n_positions=64, **ids
            )
        )
    elif kind == "bytes":
        reader = byte_level()
        model = t.LlamaForCausalLM(
            t.LlamaConfig(
                vocab_size=len(reader), hidden_size=24, num_hidden_layers=2, num_attention_heads=6,
                num_key_value_heads=2, intermediate_size=16, max_position_embeddings=64,
                bos_token_id=0, eos_token_id=0,
            )
        )  # fmt: skip
    elif kind == "encoder_decoder":
        reader = unigram()
        model = t.T5ForConditionalGeneration(
            t.T5Config(
                vocab_size=len(reader), d_model=12, d_kv=4, d_ff=16, num_layers=2, num_heads=3,
                relative_attention_num_buckets=8, decoder_start_token_id=0, pad_token_id=0,
                eos_token_id=1,
            )
        )  # fmt: skip
    else:
        reader = t.ViTImageProcessorPil(size={"height": 16, "width": 16})
        model = t.ViTForImageClassification(
            t.ViTConfig(**bert, image_size=16, patch_size=4, **names)
        )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.4)
    t.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    t.utils.logging.enable_progress_bar()
    reader.save_pretrained(folder)
    return folder
