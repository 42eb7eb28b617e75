"""What files from strangers are checked with when they are read: every field, nothing more."""

from pydantic import BaseModel, ConfigDict, ValidationError


class Checked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def first_fault(error: ValidationError | TypeError) -> str:
    """The first thing that is wrong, and where."""
    if isinstance(error, TypeError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
