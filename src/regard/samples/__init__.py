"""Three small trained models, so that there is something to see before anything is trained.

Luong's, Bahdanau's and a Transformer, which write English and Korean dates as ISO 8601: the recipe
`dates` with weights in float16. `make samples` trains them anew.
"""

from pathlib import Path

FOLDER = Path(__file__).parent


def sample_runs() -> list[Path]:
    """Return the run directories of the samples.

    >>> [run.name for run in sample_runs()]
    ['dates-bahdanau', 'dates-luong', 'dates-transformer']
    """
    return sorted(file.parent for file in FOLDER.glob("*/config.toml"))
