import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.layers import MemoryAttention
from regard.layers.memory import content, erase_and_add, interpolate, sharpen, shift

BATCH, CONTROLLER, SLOTS, WIDTH, READS, WRITES = 2, 11, 7, 5, 3, 2


def layer_of(**options) -> MemoryAttention:
    torch.manual_seed(1)
    sizes = {"slots": SLOTS, "width": WIDTH, "reads": READS, "writes": WRITES, **options}
    return MemoryAttention(CONTROLLER, **sizes).double()


def run(layer, controller, state=None):
    """Reads (batch, steps, reads · width) and the states."""
    state = layer.start(len(controller)) if state is None else state
    reads, states = [], []
    for t in range(controller.shape[1]):
        read, state = layer.step(controller[:, t], state)
        reads.append(read)
        states.append(state)
    return torch.stack(reads, dim=1), states


def random_weights(*shape):
    return torch.rand(*shape, dtype=torch.float64).softmax(-1)


# ------------------------------------------------------------------ the equations, one by one


def test_content_addressing_is_equations_5_and_6():
    memory = torch.randn(SLOTS, WIDTH, dtype=torch.float64)
    key = torch.randn(1, WIDTH, dtype=torch.float64)
    beta = 1.7
    raised = []
    for i in range(SLOTS):
        dot = sum(key[0, d] * memory[i, d] for d in range(WIDTH))
        norms = math.sqrt(sum(key[0] ** 2)) * math.sqrt(sum(memory[i] ** 2))
        raised.append(math.exp(beta * dot / norms))
    expected = torch.tensor([[value / sum(raised) for value in raised]], dtype=torch.float64)
    strength = torch.tensor([[beta]], dtype=torch.float64)
    torch.testing.assert_close(content(memory, key, strength), expected)


@pytest.mark.parametrize("zero", ["key", "memory", "slot", "both"])
def test_content_of_nothing_has_no_nan_and_finite_gradients(zero):
    memory, key = torch.randn(2, SLOTS, WIDTH), torch.randn(2, READS, WIDTH)
    if zero in ("key", "both"):
        key[:, 1] = 0.0
    if zero in ("memory", "both"):
        memory[:] = 0.0
    if zero == "slot":
        memory[:, 3] = 0.0
    memory.requires_grad_(), key.requires_grad_()
    strength = torch.full((2, READS, 1), 5.0, requires_grad=True)
    weights = content(memory, key, strength)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, READS))
    if zero != "slot":
        torch.testing.assert_close(weights[:, 1], torch.full((2, SLOTS), 1 / SLOTS))
    (weights * torch.randn_like(weights)).sum().backward()
    for tensor in (memory, key, strength):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() < 1e6


def test_interpolation_is_equation_7():
    found, previous = random_weights(2, READS, SLOTS)
    gate = torch.rand(READS, 1, dtype=torch.float64)
    result = interpolate(found, previous, gate)
    for h in range(READS):
        for i in range(SLOTS):
            g = gate[h, 0]
            assert result[h, i].item() == pytest.approx(
                float(g * found[h, i] + (1 - g) * previous[h, i])
            )


@pytest.mark.parametrize("reach", [0, 1, 2, 3])
def test_shifting_is_equation_8(reach):
    weights = random_weights(READS, SLOTS)
    kernel = random_weights(READS, 2 * reach + 1)
    result = shift(weights, kernel)
    for h in range(READS):
        for i in range(SLOTS):
            total = 0.0
            for j in range(SLOTS):
                for move in range(-reach, reach + 1):
                    if (i - j - move) % SLOTS == 0:  # s(i − j), indices modulo N
                        total += float(weights[h, j] * kernel[h, move + reach])
            assert result[h, i].item() == pytest.approx(total)


def test_sharpening_is_equation_9():
    weights = random_weights(READS, SLOTS)
    power = 1 + torch.rand(READS, 1, dtype=torch.float64)
    result = sharpen(weights, power)
    for h in range(READS):
        raised = [float(weights[h, i]) ** float(power[h, 0]) for i in range(SLOTS)]
        assert result[h].tolist() == pytest.approx([value / sum(raised) for value in raised])


@given(
    weights=st.lists(st.floats(0.0, 1.0, width=32), min_size=1, max_size=7),
    power=st.floats(1.0, 1000.0, width=32),
)
def test_sharpening_is_a_distribution_with_finite_gradients_for_any_weights(weights, power):
    row = torch.tensor([weights], dtype=torch.float32, requires_grad=True)
    gamma = torch.tensor([[power]], dtype=torch.float32, requires_grad=True)
    result = sharpen(row, gamma)
    assert result.isfinite().all()
    assert result.sum().item() == pytest.approx(float(max(weights) > 0), abs=1e-5)
    result[0, 0].backward()
    assert row.grad.isfinite().all() or 0 < max(weights) < 1e-30  # 1/w is beyond float32
    assert gamma.grad.isfinite().all()


def test_erasing_and_adding_are_equations_3_and_4():
    memory = torch.randn(SLOTS, WIDTH, dtype=torch.float64)
    weights = random_weights(WRITES, SLOTS)
    erase = torch.rand(WRITES, WIDTH, dtype=torch.float64)
    add = torch.randn(WRITES, WIDTH, dtype=torch.float64)
    result = erase_and_add(memory, weights, erase, add)
    for i in range(SLOTS):
        for d in range(WIDTH):
            value = float(memory[i, d])
            for h in range(WRITES):
                value *= 1 - float(weights[h, i] * erase[h, d])
            for h in range(WRITES):
                value += float(weights[h, i] * add[h, d])
            assert result[i, d].item() == pytest.approx(value)


def test_the_order_of_write_heads_does_not_matter():
    memory = torch.randn(SLOTS, WIDTH, dtype=torch.float64)
    weights = random_weights(WRITES, SLOTS)
    erase, add = torch.rand(2, WRITES, WIDTH, dtype=torch.float64)
    there = erase_and_add(memory, weights, erase, add)
    back = erase_and_add(memory, weights.flip(0), erase.flip(0), add.flip(0))
    torch.testing.assert_close(there, back)


def test_every_function_has_right_gradients():
    torch.manual_seed(3)

    def tensor(*shape):
        return torch.rand(*shape, dtype=torch.float64).add(0.1).requires_grad_()

    cases = [
        (content, (tensor(3, 2), tensor(2, 2), tensor(2, 1))),
        (interpolate, (tensor(2, 3), tensor(2, 3), tensor(2, 1))),
        (shift, (tensor(2, 5), tensor(2, 3))),
        (sharpen, (tensor(2, 5), tensor(2, 1))),
        (erase_and_add, (tensor(3, 2), tensor(2, 3), tensor(2, 2), tensor(2, 2))),
    ]
    for function, inputs in cases:
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


# ------------------------------------------------------------------ a step


def longhand_address(head, memory, previous, reach):
    """Eq. 5-9 for one head and one element of the batch."""
    key, (beta, gate) = head[:WIDTH], head[WIDTH : WIDTH + 2]
    kernel, gamma = head[WIDTH + 2 : -1].softmax(0), 1 + math.log1p(math.exp(head[-1]))
    cos = torch.stack([key @ row / (key.norm() * row.norm()) for row in memory])
    found = (math.log1p(math.exp(beta)) * cos).softmax(0)
    g = 1 / (1 + math.exp(-gate))
    mixed = g * found + (1 - g) * previous
    moved = torch.zeros(SLOTS, dtype=torch.float64)
    for i in range(SLOTS):
        for move in range(-reach, reach + 1):
            moved[i] += mixed[(i - move) % SLOTS] * kernel[move + reach]
    return moved**gamma / (moved**gamma).sum()


def test_a_step_addresses_the_old_memory_and_reads_the_new():
    layer = layer_of(shift=2)
    controller = torch.randn(BATCH, 3, CONTROLLER, dtype=torch.float64)
    reads, states = run(layer, controller)
    with torch.no_grad():
        before, now = states[1], states[2]
        for b in range(BATCH):
            x = controller[b, 2]
            write = (layer.write_heads.weight @ x + layer.write_heads.bias).view(WRITES, -1)
            read = (layer.read_heads.weight @ x + layer.read_heads.bias).view(READS, -1)
            memory = before.memory[b]
            for h in range(WRITES):
                weights = longhand_address(
                    write[h, : -2 * WIDTH], before.memory[b], before.write_weights[b, h], 2
                )
                torch.testing.assert_close(now.write_weights[b, h], weights)
                erase = write[h, -2 * WIDTH : -WIDTH].sigmoid()
                memory = memory * (1 - torch.outer(weights, erase))
            for h in range(WRITES):
                memory = memory + torch.outer(now.write_weights[b, h], write[h, -WIDTH:])
            torch.testing.assert_close(now.memory[b], memory)
            for h in range(READS):
                weights = longhand_address(read[h], before.memory[b], before.read_weights[b, h], 2)
                torch.testing.assert_close(now.read_weights[b, h], weights)
                expected = sum(weights[i] * memory[i] for i in range(SLOTS))
                part = reads[b, 2, h * WIDTH : (h + 1) * WIDTH]
                torch.testing.assert_close(part, expected)


def test_the_state_starts_on_the_first_slot_of_an_empty_memory():
    state = layer_of().start(BATCH)
    assert state.memory.shape == (BATCH, SLOTS, WIDTH)
    assert state.memory.abs().max() <= 1e-6
    for weights, heads in ((state.read_weights, READS), (state.write_weights, WRITES)):
        assert weights.shape == (BATCH, heads, SLOTS)
        assert torch.equal(weights[..., 0], torch.ones(BATCH, heads, dtype=torch.float64))
        assert weights.sum() == BATCH * heads
    assert state.read().shape == (BATCH, READS * WIDTH)


def test_a_new_layer_writes_slot_after_slot_and_finds_what_it_wrote():
    torch.manual_seed(1)
    layer = MemoryAttention(CONTROLLER, slots=17, width=13)
    with torch.no_grad():  # look by content alone: the gate, and the shift by 0
        layer.read_heads.bias[[13 + 1, 13 + 3]] = 20.0
    written = torch.randn(1, 6, CONTROLLER)
    _, states = run(layer, torch.cat((written, written[:, 2:3]), dim=1))
    for t, state in enumerate(states[:6]):
        assert state.write_weights[0, 0].argmax() == t + 1
        assert state.write_weights.max() > 0.9
    assert states[6].read_weights[0, 0].argmax() == 3  # the third slot after the start


@pytest.mark.parametrize("search", [0.05, 0.5])
def test_read_heads_start_by_searching_as_much_as_they_are_told(search):
    layer = layer_of(search=search)
    _, state = layer.step(torch.zeros(1, CONTROLLER, dtype=torch.float64), layer.start(1))
    found = torch.full((SLOTS,), search / SLOTS, dtype=torch.float64)  # a key of zeros: any slot
    found[0] += 1 - search
    forward, stay = (math.exp(x) / (math.exp(2) + 2) for x in (2, 0))  # also the shift backward
    moved = forward * found.roll(1) + stay * found + stay * found.roll(-1)
    sharp = moved ** (1 + math.log(2))
    torch.testing.assert_close(state.read_weights[0, 0], sharp / sharp.sum())
    with pytest.raises(ValueError, match="search must be above 0 and below 1, got 0"):
        layer_of(search=0)


def test_weights_stay_distributions_and_the_read_is_in_the_state():
    reads, states = run(layer_of(), 5 * torch.randn(BATCH, 23, CONTROLLER, dtype=torch.float64))
    for t, state in enumerate(states):
        assert torch.equal(state.read(), reads[:, t])
        for weights in (state.read_weights, state.write_weights):
            assert (weights >= 0).all()
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_a_step_leaves_the_old_state_alone():
    layer = layer_of()
    state = layer.start(BATCH)
    before = copy.deepcopy(state)
    keys = vars(layer).keys()
    layer.step(torch.randn(BATCH, CONTROLLER, dtype=torch.float64), state)
    for old, same in zip(state, before, strict=True):
        assert torch.equal(old, same)
    assert vars(layer).keys() == keys


def test_a_memory_of_zeros_and_zero_keys_trains_without_nan():
    layer = layer_of().float()
    torch.nn.init.zeros_(layer.read_heads.weight)
    torch.nn.init.zeros_(layer.write_heads.bias)
    torch.nn.init.zeros_(layer.read_heads.bias)
    start = layer.start(BATCH)
    state = start._replace(memory=torch.zeros_like(start.memory).requires_grad_())
    controller = torch.randn(BATCH, 5, CONTROLLER, requires_grad=True)
    reads, _ = run(layer, controller, state)
    assert reads.isfinite().all()
    reads.square().sum().backward()
    for tensor in (controller, state.memory, *layer.parameters()):
        assert tensor.grad.isfinite().all()


def test_gradients_reach_every_parameter_through_time():
    layer = layer_of()
    reads, _ = run(layer, torch.randn(BATCH, 5, CONTROLLER, dtype=torch.float64))
    reads[:, -1].square().sum().backward()
    for parameter in layer.parameters():
        assert (parameter.grad.abs().sum(-1) > 0).all()


def test_rows_of_a_batch_do_not_touch_each_other():
    layer = layer_of()
    controller = torch.randn(3, 5, CONTROLLER, dtype=torch.float64)
    changed = controller.clone()
    changed[1] += 1.0
    one, other = run(layer, controller)[0], run(layer, changed)[0]
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[2], other[2])
    assert not torch.equal(one[1], other[1])


def test_reordering_the_state_reorders_what_follows():
    layer = layer_of()
    first, then = torch.randn(2, 3, 2, CONTROLLER, dtype=torch.float64)
    index = torch.tensor([2, 0, 0, 1])
    _, states = run(layer, first)
    reads, _ = run(layer, then[index], states[-1].reorder(index))
    expected = run(layer, torch.cat((first, then), dim=1)[index])[0][:, 2:]
    torch.testing.assert_close(reads, expected)


def test_no_parameter_depends_on_the_number_of_slots():
    small, large = layer_of(), layer_of(slots=23)
    large.load_state_dict(small.state_dict())
    read, state = large.step(torch.randn(2, CONTROLLER, dtype=torch.float64), large.start(2))
    assert state.memory.shape == (2, 23, WIDTH)
    assert read.isfinite().all()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"slots": 0}, "slots must be 1 or more"),
        ({"reads": 0}, "reads must be 1 or more"),
        ({"writes": -1}, "writes must be 1 or more"),
        ({"shift": -1}, "shift must be from 0 to 3"),
        ({"shift": 4}, "its 9 shifts differ, got 4"),
    ],
)
def test_a_wrong_configuration_raises_a_helpful_error(options, match):
    with pytest.raises(ValueError, match=match):
        layer_of(**options)


def test_a_wrong_input_or_state_raises_a_helpful_error():
    layer = layer_of()
    state = layer.start(BATCH)
    with pytest.raises(ValueError, match=r"\(2, 11\), got \(2, 1, 11\)"):
        layer.step(torch.zeros(BATCH, 1, CONTROLLER, dtype=torch.float64), state)
    with pytest.raises(ValueError, match=r"state\.memory should be \(2, 7, 5\), got \(2, 7, 3\)"):
        layer.step(
            torch.zeros(BATCH, CONTROLLER, dtype=torch.float64),
            state._replace(memory=state.memory[..., :3]),
        )
