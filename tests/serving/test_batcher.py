"""Jobs of many clients are computed together, in time, and without waiting for those who left."""

import asyncio
import threading
import time

import pytest

from regard.serving.batcher import Batcher, Job
from regard.web import RequestError


def job(*inputs, tokens=None, seconds=10.0, **options):
    return Job(inputs, options, tokens or len(inputs), time.monotonic() + seconds)


class Model:
    """Doubles numbers, and remembers the batches."""

    def __init__(self, seconds=0.0):
        self.seconds, self.batches, self.go_on = seconds, [], threading.Event()
        self.go_on.set()

    def __call__(self, inputs, on_step, **options):
        self.go_on.wait(10)
        on_step()
        self.batches.append((list(inputs), options))
        if any(one == "bad" for one in inputs):
            raise ValueError("bad input")
        return [2 * one for one in inputs]


def run(scenario, model=None, **options):
    model = model or Model()

    async def whole():
        batcher = Batcher(model, **options)
        batcher.start()
        try:
            return await scenario(batcher)
        finally:
            model.go_on.set()
            await batcher.stop()

    return asyncio.run(asyncio.wait_for(whole(), 20))


def test_jobs_that_arrive_together_are_one_batch():
    model = Model()

    async def scenario(batcher):
        jobs = [job(n, n + 1) for n in range(5)]
        return await asyncio.gather(*map(batcher.submit, jobs))

    assert run(scenario, model, wait=0.05) == [[2 * n, 2 * n + 2] for n in range(5)]
    assert len(model.batches) == 1


def test_a_batch_holds_no_more_tokens_than_it_may():
    model = Model()

    async def scenario(batcher):
        return await asyncio.gather(*(batcher.submit(job(n, tokens=40)) for n in range(5)))

    assert run(scenario, model, wait=0.05, tokens=100) == [[2 * n] for n in range(5)]
    assert [len(inputs) for inputs, _ in model.batches] == [2, 2, 1]


def test_other_options_are_another_batch():
    model = Model()

    async def scenario(batcher):
        return await asyncio.gather(*(batcher.submit(job(n, beam=n % 2)) for n in range(4)))

    assert run(scenario, model, wait=0.05) == [[0], [2], [4], [6]]
    assert model.batches == [([0, 2], {"beam": 0}), ([1, 3], {"beam": 1})]


def test_a_full_queue_refuses_with_a_time_to_come_back():
    model = Model()
    model.go_on.clear()

    async def scenario(batcher):
        first = batcher.submit(job(0))
        await asyncio.sleep(0.1)  # the model is busy with it
        waiting = [batcher.submit(job(n)) for n in (1, 2)]
        with pytest.raises(RequestError, match="try again in") as caught:
            batcher.submit(job(3))
        model.go_on.set()
        return caught.value, await asyncio.gather(first, *waiting)

    error, found = run(scenario, model, wait=0.0, waiting=2)
    assert error.status == 429
    assert int(error.headers["retry-after"]) >= 1
    assert found == [[0], [2], [4]]


def test_what_nobody_waits_for_is_not_computed():
    model = Model()
    model.go_on.clear()

    async def scenario(batcher):
        first = batcher.submit(job(0))
        await asyncio.sleep(0.1)
        batcher.submit(job(1)).cancel()  # its client is gone
        batcher.submit(job(2, seconds=0.0))  # its time is over
        last = batcher.submit(job(3))
        model.go_on.set()
        return await asyncio.gather(first, last)

    assert run(scenario, model, wait=0.0) == [[0], [6]]
    assert [inputs for inputs, _ in model.batches] == [[0], [3]]


def test_a_computation_that_nobody_waits_for_is_stopped():
    model = Model()
    model.go_on.clear()

    async def scenario(batcher):
        left = batcher.submit(job(1))
        await asyncio.sleep(0.1)
        left.cancel()
        model.go_on.set()
        return await batcher.submit(job(2))

    assert run(scenario, model, wait=0.0) == [4]
    assert [inputs for inputs, _ in model.batches] == [[2]]


def test_a_bad_input_fails_alone():
    async def scenario(batcher):
        jobs = [batcher.submit(job(one)) for one in (1, "bad", 3)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    first, bad, last = run(scenario, wait=0.05)
    assert (first, last) == ([2], [6])
    assert str(bad) == "bad input"


def test_the_end_finishes_what_was_accepted():
    model = Model()

    async def scenario(batcher):
        jobs = [batcher.submit(job(n)) for n in range(3)]
        await batcher.stop()
        return [one.result() for one in jobs]

    assert run(scenario, model, wait=0.0) == [[0], [2], [4]]
