"""What attention costs in a model, by the path it takes."""

from regard.attention.record import CallRecord
from regard.core.request import Request
from regard.paths.choice import plan


class Flops:
    """An observer that adds up what calls of attention cost, by path."""

    edits = gradients = False

    def __init__(self) -> None:
        self.by_path: dict[str, int] = {}

    def edit(self, request: Request) -> Request:
        return request

    def notify(self, report: CallRecord) -> None:
        request = report.request
        cost = plan(request).flops
        self.by_path[report.path] = self.by_path.get(report.path, 0) + cost
