"""Where a number comes from. A predicted or assumed number never passes for a measured one."""

from enum import StrEnum


class Label(StrEnum):
    MEASURED = "measured"
    PREDICTED = "predicted"
    ASSUMED = "assumed"
