"""Blocks of a request in every group of a model's layers: they all come out of one pool."""

from chunkscope.hardware.kv_groups import KvGroup
from chunkscope.models.layers import KvKind
from chunkscope.vllm.rules import Rules
from chunkscope.vllm.settings import EngineArgs


class GroupBlocks:
    """A row is the blocks of `full` + `sliding` groups for the same tokens.

    Groups with a window give back the rows that left it. A state takes its blocks once.
    """

    def __init__(self, args: EngineArgs, rules: Rules) -> None:
        kinds = [group.kind for group in args.kv_groups]
        windows = [group.window for group in args.kv_groups if group.window]
        self.full = kinds.count(KvKind.FULL) if kinds else 1
        self.sliding = len(windows)
        self.per_row = self.full + self.sliding
        self.state = sum(_state(group) for group in args.kv_groups)
        self.window = windows[0] if windows else 0  # of all that have one
        # A step that still runs reads what was in the window when it was launched.
        self.lags = bool(windows) and args.async_scheduling and rules.keeps_window_of_running_step
        self._block_size = args.block_size
        self._most_rows = self._held_at_most(args) if rules.window_caps_admission else None

    def _held_at_most(self, args: EngineArgs) -> int:
        steps = 2 if self.lags else 1
        tokens = self.window - 1 + steps * args.max_num_batched_tokens
        return self.rows(min(tokens, args.max_model_len or tokens)) + 1

    def rows(self, tokens: int) -> int:
        return -(-tokens // self._block_size)

    def skipped(self, tokens: int) -> int:
        """Rows that lie before the window of the token after so many."""
        outside = tokens - self.window + 1
        return outside // self._block_size if self.window and outside > 0 else 0

    def found(self, tokens: int) -> int:
        """Besides rows of full groups, what a request holds that begins with a cached prefix."""
        return self.state + self.sliding * (self.rows(tokens) - self.skipped(tokens))

    def to_reserve(self, tokens: int, computed: int = 0) -> int:
        """For rows that vLLM wants to be free before it lets a request of so many tokens in."""
        rows, held = self.rows(tokens), self.rows(computed)
        sliding = rows if self._most_rows is None else min(rows, self._most_rows)
        return self.full * (rows - held) + self.sliding * max(0, sliding - held)


def _state(group: KvGroup) -> int:
    return group.state_blocks if group.kind is KvKind.STATE else 0
