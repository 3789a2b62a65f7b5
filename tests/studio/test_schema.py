"""Requests that follow from the OpenAPI description, valid and invalid: no answer is a defect."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode

from regard.studio import create_studio
from tests.loopback import serving

EXAMPLES = 12  # of each operation and mode


@pytest.mark.slow
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_the_server_fail(trained: Any, tmp_path: Any, mode: Any) -> None:
    with serving(create_studio([trained], home=tmp_path / "new")) as client:
        schema = schemathesis.openapi.from_url(f"{client.address}/api/v1/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 10
        for operation in operations:
            _attack(operation, mode)


def _attack(operation: Any, mode: Any) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def attack(case: Any) -> None:
        answer = case.call(timeout=60)
        assert answer.status_code < 500, (case, answer.text)
        assert "Traceback" not in answer.text

    measures = operation.path.endswith("/gallery/cost")  # for seconds
    has_nothing_to_negate = mode is GenerationMode.NEGATIVE and not (
        operation.query or operation.body
    )
    if not (measures or has_nothing_to_negate):
        attack()
