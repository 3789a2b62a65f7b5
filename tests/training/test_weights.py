import pytest
import torch
from torch import nn

from regard.models import build
from regard.training.finish import average_checkpoints
from regard.training.weights import put_weights, read_tensors, weights, write_model


def transformer(tie="all"):
    sizes = {"dim": 8, "heads": 2, "hidden": 11, "layers": 1}
    return build("transformer", source_vocabulary=13, target_vocabulary=13, tie=tie, **sizes)


def test_tied_weights_are_stored_once_and_tied_again(tmp_path):
    torch.manual_seed(3)
    model = transformer()
    stored = weights(model)
    assert len(stored) < len(model.state_dict())
    write_model(tmp_path / "model.safetensors", stored)
    other = transformer()
    put_weights(other, read_tensors(tmp_path / "model.safetensors"))
    for name, tensor in model.state_dict().items():
        assert other.state_dict()[name].equal(tensor), name
    pointers = {tensor.data_ptr() for tensor in other.state_dict().values()}
    assert len(pointers) == len(stored)


def test_the_same_weights_make_the_same_bytes(tmp_path):
    torch.manual_seed(3)
    tensors = weights(transformer())
    write_model(tmp_path / "a", tensors)
    write_model(tmp_path / "b", dict(reversed(tensors.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_weights_of_another_model_are_refused_by_name_and_shape():
    model = nn.Linear(3, 5)
    for tensors, complaint in (
        (weights(nn.Linear(3, 7)), r"a.bin is of another model: weight has shape \(7, 3\) there"),
        ({"weight": model.weight}, "a.bin has no bias"),
        ({**weights(model), "scale": torch.ones(1)}, "the model has no scale"),
    ):
        with pytest.raises(ValueError, match=complaint):
            put_weights(nn.Linear(3, 5), tensors, "a.bin")


@pytest.mark.parametrize("size", [0, 5, 40, -3])
def test_a_truncated_file_is_one_sentence(tmp_path, size):
    path = tmp_path / "model.safetensors"
    write_model(path, weights(nn.Linear(3, 5)))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        read_tensors(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model.safetensors does not exist"):
        read_tensors(tmp_path / "model.safetensors")


def test_an_average_is_the_mean_of_floats_and_the_last_of_integers(tmp_path):
    rows = []
    for number in range(3):
        folder = tmp_path / "checkpoints" / f"step-{number}"
        folder.mkdir(parents=True)
        rows.append({"w": torch.randn(2, 3), "seen": torch.tensor(number)})
        write_model(folder / "model.safetensors", rows[-1])
    found = average_checkpoints(tmp_path, [0, 1, 2])
    mean = torch.stack([row["w"] for row in rows]).double().mean(0).float()
    torch.testing.assert_close(found["w"], mean, rtol=0, atol=1e-7)
    assert found["seen"].item() == 2
    assert found["w"].dtype == torch.float32
    alone = average_checkpoints(tmp_path, [1])
    assert alone["w"].equal(rows[1]["w"])
