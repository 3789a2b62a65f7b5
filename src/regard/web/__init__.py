"""What the studio and `regard serve` share: typed endpoints, limits, checks of requests."""

from regard.web.api import Endpoint, create_app
from regard.web.events import Event, EventStream
from regard.web.guard import Guard
from regard.web.problem import Problem, RequestError, problem
from regard.web.server import is_loopback, make_token, run_server

__all__ = [
    "Endpoint",
    "Event",
    "EventStream",
    "Guard",
    "Problem",
    "RequestError",
    "create_app",
    "is_loopback",
    "make_token",
    "problem",
    "run_server",
]
