"""Paired text and frames: reading, tokenizing, storing, batching and generating."""

from regard.data.batch import Batch, Batches, Order, collate
from regard.data.datasets import DATASETS, data_folder, read_dataset
from regard.data.encoded import Encoded, encode_pairs
from regard.data.fetch import fetch
from regard.data.files import Report
from regard.data.fingerprint import fingerprint
from regard.data.frames import read_frames, write_frames
from regard.data.generated import GENERATED, SPLITS, generate
from regard.data.pairs import Pairs
from regard.data.readers import (
    READERS,
    from_dataset,
    read_aligned,
    read_dictionary,
    read_fixed_width,
    read_pairs,
    read_table,
    read_text,
)
from regard.data.tokenizer import (
    Tokenizer,
    load_or_train_tokenizer,
    load_tokenizer,
    train_tokenizer,
    train_tokenizers,
)

__all__ = [
    "DATASETS",
    "GENERATED",
    "READERS",
    "SPLITS",
    "Batch",
    "Batches",
    "Encoded",
    "Order",
    "Pairs",
    "Report",
    "Tokenizer",
    "collate",
    "data_folder",
    "encode_pairs",
    "fetch",
    "fingerprint",
    "from_dataset",
    "generate",
    "load_or_train_tokenizer",
    "load_tokenizer",
    "read_aligned",
    "read_dataset",
    "read_dictionary",
    "read_fixed_width",
    "read_frames",
    "read_pairs",
    "read_table",
    "read_text",
    "train_tokenizer",
    "train_tokenizers",
    "write_frames",
]
