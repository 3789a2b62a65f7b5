"""`regard serve`: a trained model over HTTP."""

from regard.serving.app import Limits, create_server
from regard.serving.batcher import Batcher, Job

__all__ = ["Batcher", "Job", "Limits", "create_server"]
