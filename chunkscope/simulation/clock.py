"""The times of a run: when each step ends, and how long tokens keep people waiting."""

from collections import deque

from chunkscope.simulation.pipeline import Pipeline
from chunkscope.simulation.step import Step


class Clock:
    """`gpu_s`: what the GPU computed in all; where all requests come at once, as long as the run
    would take with a host that takes no time."""

    def __init__(self, pipeline: Pipeline, start: float) -> None:
        self.now = start
        self.ends: list[float] = []  # of each step
        self.gaps: list[tuple[float, int]] = []  # between tokens, and how many
        self.gpu_s = 0.0
        self.tokens = 0
        self._pipeline = pipeline
        self._launched: deque[float] = deque()  # when, of steps that are not finished

    def launch(self, step: Step) -> None:
        self._launched.append(self.now)
        self.tokens += step.total_num_scheduled_tokens
        self.gpu_s += self._pipeline.launch(step, self.now)
        self.now = self._pipeline.host_free

    def finish(self, step: Step) -> float:
        """The tokens that a step gives are there at its end; how long it took."""
        end, launched, ends = self._pipeline.finish(), self._launched.popleft(), self.ends
        before = ends[-1] if ends else launched
        seconds = end - (launched if launched > before else before)
        if step.going_on:
            self.gaps.append((end - before, step.going_on))
        for last_step in step.resumed:
            self.gaps.append((end - ends[last_step], 1))
        ends.append(end)
        self.now = end
        return seconds
