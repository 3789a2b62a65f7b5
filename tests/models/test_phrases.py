"""Phrases against Lu et al. 2016, eq. 1-2, written out."""

import pytest
import torch
import torch.nn.functional as F

from regard.models.pair import Phrases


def test_each_place_has_the_strongest_phrase_that_begins_there():
    torch.manual_seed(3)
    layer = Phrases(5, 3).double()
    words = torch.randn(2, 7, 5, dtype=torch.float64)
    found = layer(words)
    padded = F.pad(words, (0, 0, 0, 2))
    for b in range(2):
        for t in range(7):
            phrases = [
                torch.tanh(
                    torch.einsum("oik,ki->o", one.weight, padded[b, t : t + size]) + one.bias
                )
                for size, one in enumerate(layer.lengths, start=1)
            ]
            torch.testing.assert_close(found[b, t], torch.stack(phrases).amax(0))


def test_a_size_below_one_is_refused():
    with pytest.raises(ValueError, match="longest must be 1 or more, got 0"):
        Phrases(5, 0)
