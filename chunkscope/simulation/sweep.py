"""Settings around one, to see what each step size does to a workload."""

from collections.abc import Iterator
from dataclasses import replace

from chunkscope.vllm.settings import Settings

BUDGETS = (256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536)
THRESHOLDS = (512, 2_048, 8_192)


def points(base: Settings) -> Iterator[Settings]:
    """Every budget without a threshold, then thresholds at the budget of `base`.

    A budget below max_model_len needs chunking on; one below max_num_seqs runs fewer
    requests.
    """
    base = replace(base, enable_chunked_prefill=True)
    for budget in BUDGETS:
        yield replace(base.at_budget(budget), long_prefill_token_threshold=0)
    for threshold in THRESHOLDS:
        if threshold < base.step_tokens:
            yield replace(base, long_prefill_token_threshold=threshold)
