import pytest
import torch

from regard.models.image import ImageClassifier
from regard.models.options import SELF_ATTENTIONS


def make(**options) -> ImageClassifier:
    torch.manual_seed(0)
    return ImageClassifier((6, 10), 3, **{"patch": 2, "dim": 12, "heads": 3, "layers": 2} | options)


def test_patches_are_cut_from_where_they_are() -> None:
    model = make().eval()
    image = torch.zeros(1, 6, 10)
    image[0, 2:4, 8:10] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # row 1, column 4 of patches
    blank = model._patches(torch.zeros(1, 6, 10))
    changed = (model._patches(image) - blank)[0]
    expected = model.patches.weight @ torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert changed.abs().sum(-1).nonzero().flatten().tolist() == [1 * 5 + 4]
    torch.testing.assert_close(changed[9], expected)


@pytest.mark.parametrize("attention", SELF_ATTENTIONS)
@pytest.mark.parametrize("region", [None, 1])
def test_weights_of_patches_sum_to_one_and_asking_changes_nothing(attention, region) -> None:
    model = make(attention=attention, region=region).eval()
    images = torch.rand(7, 6, 10)
    seen = model(images, return_map=True)
    assert seen.weights.shape == (7, 3, 5)
    torch.testing.assert_close(seen.weights.sum((1, 2)), torch.ones(7))
    plain = model(images)
    assert plain.weights is None
    torch.testing.assert_close(plain.logits, seen.logits)


def test_weights_of_regions_lie_where_the_patches_are() -> None:
    torch.manual_seed(0)
    model = ImageClassifier((4, 8), 3, patch=1, dim=12, heads=3, layers=1, region=2).eval()
    with torch.no_grad():  # the pooling's query selects the first feature alone
        for pool in (model.pooling.words, model.pooling.sentences):
            pool.query.zero_()[0, 0] = 50.0
            pool.projection.weight.copy_(torch.eye(12))
            pool.projection.bias.zero_()
    x = torch.zeros(1, 32, 12)
    x[0, 3 * 8 + 5, 0] = 1.0  # row 3, column 5
    weights = model._pooled(x, True).weights
    assert weights.shape == (1, 4, 8)
    assert int(weights.argmax()) == 3 * 8 + 5


@pytest.mark.parametrize("attention", SELF_ATTENTIONS)
def test_every_parameter_gets_a_gradient(attention: str) -> None:
    for region in (None, 1):
        model = make(attention=attention, region=region)
        model(torch.rand(5, 6, 10)).logits.square().sum().backward()
        without = [n for n, p in model.named_parameters() if p.grad is None]
        assert without == []


def test_it_knows_where_a_patch_is() -> None:
    model = make().eval()
    image = torch.zeros(1, 6, 10)
    image[0, 0, 0] = 1.0
    assert not torch.allclose(model(image).logits, model(image.flip(1, 2)).logits, atol=1e-5)


def test_bad_sizes_and_names_raises_a_helpful_error() -> None:
    with pytest.raises(ValueError, match=r"images should be \(B, 6, 10\), got \(2, 10, 6\)"):
        make()(torch.zeros(2, 10, 6))
    with pytest.raises(ValueError, match="patch=4 should divide the 6 × 10 pixels"):
        make(patch=4)
    with pytest.raises(ValueError, match="region=2 should divide the 3 × 5 patches"):
        make(region=2)
    with pytest.raises(ValueError, match="unknown attention 'eficient'; did you mean 'efficient'"):
        make(attention="eficient")
