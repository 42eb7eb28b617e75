"""A server that is already running: what it is, what it is asked, what it answers and when."""

from chunkscope.verification.endpoint.session import measure_endpoint

__all__ = ["measure_endpoint"]
