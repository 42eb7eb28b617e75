"""Each engine argument's value, and why: pure functions over one situation."""

from chunkscope.choices import Objective, Task
from chunkscope.choose.settle import Settled, settle
from chunkscope.choose.situation import Choice, Situation

__all__ = ["Choice", "Objective", "Settled", "Situation", "Task", "settle"]
