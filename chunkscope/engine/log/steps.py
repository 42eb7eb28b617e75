"""Steps of the engine, where it logs each (`--enable-logging-iteration-details`), added up."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class StepTally:
    """Decoding alone, and decoding beside a prompt: what the difference is, a prompt costs."""

    steps: int = 0
    prompt_tokens: int = 0
    decoding: int = 0
    decoding_ms: float = 0.0
    mixed: int = 0
    mixed_ms: float = 0.0
    longest_ms: float = 0.0  # of those that made somebody's token wait
    longest_line: int = 0

    def add(self, said: dict[str, str], line: int) -> None:
        prefills, decodes, ms = int(said["prefills"]), int(said["decodes"]), float(said["ms"])
        self.steps += 1
        self.prompt_tokens += int(said["prompt_tokens"])
        if decodes and prefills:
            self.mixed += 1
            self.mixed_ms += ms
        elif decodes:
            self.decoding += 1
            self.decoding_ms += ms
        if decodes and ms > self.longest_ms:
            self.longest_ms, self.longest_line = ms, line

    @property
    def slowdown(self) -> float | None:
        """How many times longer a decode step is with a prompt beside it."""
        if not (self.mixed and self.decoding and self.decoding_ms):
            return None
        return (self.mixed_ms / self.mixed) / (self.decoding_ms / self.decoding)
