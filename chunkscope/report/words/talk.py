"""Sentences on stderr: progress, what was written, the command that usually comes next."""

from chunkscope.report.words import Template

SENTENCES: dict[str, Template] = {
    "wrote": "\nwrote {file}",
    "wrote_next": "\nwrote {file}; next: {after}",
    "wrote_baseline": "wrote {file}, the baseline of later data: commit it",
    "wrote_trace": "wrote {file}: requests that are sent all at once\nreplay it: vllm bench serve "
    "--backend vllm --model MODEL --dataset-name timed_trace --dataset-path {file} --num-prompts "
    "{requests:d} --timed-trace-chunk-hash-size {block:d} --timed-trace-sec-multiplier 0.001",
    "preparing": "preparing the tokenizer {tokenizer} (once)",
    "reading_terminal": "reading from the terminal: type or paste the data, then Ctrl-D",
    "running_tasks": "{tasks}: running the code of its tasks in a separate process ({python})",
    "nothing_cached": "note: {why}; nothing is cached",
    "skipped": "skipped[file? {file}]: {reason}",
    "skipped_more": "skipped {count:more file}",
    "counting_again": "note: {engine} and the reference differ on this data: counting again",
    "vllm_accepts": "vLLM {version} accepts these arguments",
    "answering": "answering {setting}",
    "rows_are_kept": "\n{file} has the measured rows; to go on: chunkscope {again} --resume",
    "log_end": "  (the end of {log})",
    "old_budget": "the old {file} is now {old}",
    "fails_today": "not checked, because it fails today: {names}",
    "settings_unchecked": "settings are not checked yet: write them with `{command} "
    "--emit vllm-yaml >{file}`, then run `chunkscope gate --init --force{where}`",
    "next_evaluation": "\nnext: run the evaluation",
}
