"""A tiny model learns to turn strings around within seconds."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.models import build

PAD, BOS, EOS, SYMBOLS, LONGEST = 0, 1, 2, 5, 6


def reversals(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Strings of five symbols, their lengths, and the strings turned around, bos to eos."""
    lengths = torch.randint(3, LONGEST + 1, (count,), generator=generator)
    source = torch.randint(3, 3 + SYMBOLS, (count, LONGEST), generator=generator)
    position = torch.arange(LONGEST)
    source[position >= lengths[:, None]] = PAD
    turned = source.gather(1, (lengths[:, None] - 1 - position).clamp(min=0))
    turned[position >= lengths[:, None]] = PAD
    target = torch.zeros(count, LONGEST + 2, dtype=torch.long)
    target[:, 0] = BOS
    target[:, 1:-1] = turned
    target[torch.arange(count), lengths + 1] = EOS
    return source, lengths, target


def test_a_tiny_gru_with_luong_attention_learns_to_reverse():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    sizes = {"source_vocabulary": 8, "target_vocabulary": 8, "embedding": 16, "hidden": 32}
    model = build("luong", **sizes, bidirectional="all")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(250):
        source, lengths, target = reversals(32, generator)
        logits = model.output(model(source, lengths, target[:, :-1]))
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    model.eval()
    source, lengths, target = reversals(200, generator)
    with torch.inference_mode():
        state, tokens, written = model.start(model.encode(source, lengths)), target[:, 0], []
        for _ in range(LONGEST + 1):
            features, state = model.step(tokens, state)
            tokens = model.output(features).argmax(-1)
            written.append(tokens)
    right = (torch.stack(written, 1) == target[:, 1:]) | (target[:, 1:] == PAD)
    assert right.all(1).float().mean() > 0.95
