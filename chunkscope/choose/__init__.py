"""Each engine argument's value, and why: pure functions over one situation."""

from chunkscope.choose.settle import Settled, settle
from chunkscope.choose.situation import Choice, Objective, Situation, Task

__all__ = ["Choice", "Objective", "Settled", "Situation", "Task", "settle"]
