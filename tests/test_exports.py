"""What `import regard` exports, at once or on first access."""

import subprocess
import sys

import pytest

import regard

ALONE = """
import regard
print(regard.layers.MultiHeadAttention.__name__, regard.models.build.__name__)
"""


@pytest.mark.parametrize("name", regard.__all__)
def test_every_export_is_there_and_listed(name):
    assert getattr(regard, name) is not None
    assert name in dir(regard)


def test_layers_and_models_are_there_after_importing_regard_alone():
    run = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert run.stdout == "MultiHeadAttention build\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'atend'"):
        _ = regard.atend
