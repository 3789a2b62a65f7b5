"""Linear attention of other libraries is recorded as the map that its recurrence implies."""

import warnings

import pytest
import torch
from torch import nn

import regard
from regard.trace.adapters.recurrences import FUNCTIONS

B, T, H, K, V = 2, 7, 3, 4, 5
IDS = torch.tensor([[5, 7, 11, 3, 9, 4]])


def tensors(*names: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = {"q": (B, T, H, K), "k": (B, T, H, K), "v": (B, T, H, V), "beta": (B, T, H)}
    sizes |= {"g": (B, T, H), "gk": (B, T, H, K)}
    made = {name: torch.randn(*sizes[name], generator=generator) for name in sizes}
    made["beta"] = made["beta"].sigmoid()
    made |= {name: -made[name].abs() for name in ("g", "gk")}
    return {name: made[name] for name in names}


def by_steps(q, k, v, decay=None, beta=None, state=None):
    """The recurrence of one position after another: outputs and the last state."""
    state = torch.zeros(B, H, K, V) if state is None else state
    outputs = []
    for t in range(q.shape[1]):
        if decay is not None:
            factor = decay[:, t].exp()
            state = state * (factor[..., None, None] if factor.dim() == 2 else factor[..., None])
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - (k[:, t].unsqueeze(-2) @ state).squeeze(-2))
        state = state + k[:, t].unsqueeze(-1) * new.unsqueeze(-2)
        outputs.append((q[:, t].unsqueeze(-2) @ state).squeeze(-2) * K**-0.5)
    return torch.stack(outputs, 1), state


# functions with the signatures of flash-linear-attention


def chunk_gated_delta_rule(
    q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None,
):  # fmt: skip
    return by_steps(q, k, v, g, beta, initial_state)


def chunk_kda(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False):
    return by_steps(q, k, v, g, beta, initial_state)


def chunk_delta_rule(q, k, v, beta, scale=None, initial_state=None, output_final_state=False):
    return by_steps(q, k, v, None, beta, initial_state)


def chunk_gla(q, k, v, g, scale=None, initial_state=None, output_final_state=False):
    return by_steps(q, k, v, g, None, initial_state)


def chunk_simple_gla(q, k, v, g=None, scale=None, initial_state=None, output_final_state=False):
    return by_steps(q, k, v, g, None, initial_state)


def chunk_retention(q, k, v, scale=None, initial_state=None, output_final_state=False):
    decay = (1 - 2.0 ** (-5 - torch.arange(H))).log().expand(B, q.shape[1], H)
    return by_steps(q, k, v, decay, None, initial_state)


def chunk_linear_attn(
    q, k, v, scale=None, initial_state=None, output_final_state=False, normalize=False
):
    output, state = by_steps(q, k, v, None, None, initial_state)
    if normalize:
        sums = (q * K**-0.5 * k.cumsum(1)).sum(-1, keepdim=True)
        output = output / (sums + 1e-10)
    return output, state


CASES = {
    "chunk_gated_delta_rule": ("q", "k", "v", "g", "beta"),
    "chunk_kda": ("q", "k", "v", "gk", "beta"),
    "chunk_delta_rule": ("q", "k", "v", "beta"),
    "chunk_gla": ("q", "k", "v", "gk"),
    "chunk_simple_gla": ("q", "k", "v", "g"),
    "chunk_retention": ("q", "k", "v"),
    "chunk_linear_attn": ("q", "k", "v"),
}


class Layer(nn.Module):
    def __init__(self, name: str, **options: object) -> None:
        super().__init__()
        self.name, self.options = name, options

    def forward(self, given, state=None):
        function = globals()[self.name]
        return function(*given, initial_state=state, output_final_state=True, **self.options)


@pytest.mark.parametrize("name", CASES)
def test_the_map_of_a_recurrence_gives_its_output(name):
    assert name in FUNCTIONS
    layer, given = Layer(name), list(tensors(*CASES[name]).values())
    before = layer(given)
    with regard.capture(layer) as trace:
        during = layer(given)
    assert all(torch.equal(a, b) for a, b in zip(before, during, strict=True))
    (call,) = trace
    assert call.shape == (B, H, T, T)
    weights = call.map.dense()
    value = given[2].transpose(1, 2)
    assert torch.allclose((weights @ value).transpose(1, 2), before[0], atol=1e-5)
    assert torch.equal(weights, weights.tril())
    assert call.verify() < 1e-5
    assert (call.provenance["path"], call.provenance["signed"]) == (name, True)
    assert not call.is_distribution
    assert torch.allclose(call.map[..., 2:4, :], weights[..., 2:4, :], atol=1e-6)
    assert globals()[name].__name__ == name
    assert not hasattr(globals()[name], "__wrapped__")


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_goes_on_from_a_state_adds_rows(name):
    layer, given = Layer(name), list(tensors(*CASES[name]).values())
    with regard.capture(layer) as whole:
        layer(given)
    with regard.capture(layer) as trace:
        _, state = layer([each[:, :4] for each in given])
        assert trace[0].shape == (B, H, 4, 4)
        for t in range(4, T):
            _, state = layer([each[:, t : t + 1] for each in given], state)
    (call,) = trace
    assert torch.allclose(call.map.dense(), whole[0].map.dense(), atol=1e-5)
    assert call.verify() < 1e-5


def test_normalized_weights_add_up_to_one():
    layer, given = Layer("chunk_linear_attn", normalize=True), list(tensors("q", "k", "v").values())
    with regard.capture(layer) as trace:
        layer(given)
    assert torch.allclose(trace[0].map.dense().sum(-1), torch.ones(B, H, T), atol=1e-3)
    assert trace[0].verify() < 1e-3


def test_what_goes_on_from_an_unknown_state_or_is_not_understood_is_not_recorded():
    given = list(tensors("q", "k", "v", "g", "beta").values())
    layer = Layer("chunk_gated_delta_rule", cu_seqlens=torch.tensor([0, T]))
    for model, state in ((Layer("chunk_gated_delta_rule"), torch.ones(B, H, K, V)), (layer, None)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with regard.capture(model) as trace:
                model(given, state)
        assert trace.names == []


# ---------------------------------------------------------------------- transformers

MAMBA = {
    "vocab_size": 29, "hidden_size": 12, "state_size": 4, "num_hidden_layers": 2, "head_dim": 4,
    "num_heads": 6, "n_groups": 2, "expand": 2, "conv_kernel": 2, "chunk_size": 4,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def hybrid(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    from tests.trace.test_missed import QWEN

    torch.manual_seed(1)
    options = MAMBA if name == "Mamba2" else QWEN
    model = getattr(transformers, f"{name}ForCausalLM")
    return model(getattr(transformers, f"{name}Config")(**options)).eval()


@pytest.mark.parametrize("name", ["Qwen3Next", "Mamba2"])
def test_linear_layers_of_transformers_are_recorded_and_verified(name):
    model = hybrid(name)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        before = model(IDS).logits
        with regard.capture(model) as trace:
            during = model(IDS).logits
    assert torch.equal(before, during)
    assert trace.missed == []
    linear = [call for call in trace if call.provenance.get("signed")]
    assert len(linear) == (3 if name == "Qwen3Next" else 2)
    for call in linear:
        assert call.verify() < 1e-5
        assert call.shape[-2:] == (6, 6)


@pytest.mark.parametrize("name", ["Qwen3Next", "Mamba2"])
def test_the_maps_of_a_generation_are_those_of_one_pass(name):
    model = hybrid(name)
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "use_cache": True}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with regard.capture(model) as trace:
            ids = model.generate(IDS, **options)
        with regard.capture(model) as whole:
            model(ids[:, :-1], use_cache=False)
    assert trace.names == whole.names
    for call in trace:
        assert torch.allclose(call.map.dense(), whole[call.name].map.dense(), atol=1e-4)
        assert call.verify() < 1e-4
