"""Plain text: the file is the prompt, or each of its lines is one."""

from collections.abc import Iterator, Sequence

from chunkscope.sources.base import MOST_ROW_BYTES, Chunk, Problems, Source, too_long
from chunkscope.sources.byte_stream import ByteStream
from chunkscope.sources.lines import LineBytes, line_blocks, not_utf8
from chunkscope.sources.reader import StreamReader


class TextReader(StreamReader):
    """Reads .txt and .md as they are: nothing is stripped but the newline of a `per_line` row."""

    def __init__(
        self, source: Source, problems: Problems, stream: ByteStream, *, per_line: bool
    ) -> None:
        super().__init__(source, problems, stream)
        self._per_line = per_line
        self.unit = "line" if per_line else "row"

    def _read(self) -> Iterator[Chunk]:
        if self._per_line:
            for first, lines, _ in line_blocks(self._stream, self.source.path):
                yield self._decoded(first, [line.removesuffix(b"\r") for line in lines])
        else:
            data = bytearray()
            while block := self._stream.read():
                data += block
                if len(data) > MOST_ROW_BYTES:
                    raise too_long(self.source.path, "the text")
            if data:
                yield self._decoded(1, [data])

    def _decoded(self, first: int, lines: Sequence[LineBytes]) -> Chunk:
        positions: list[int] = []
        records: list[str] = []
        for number, line in enumerate(lines, first):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                self.problems.bad(number, self._bad_byte(line, error.start))
                continue
            if text.strip():
                positions.append(number)
                records.append(text)
        return Chunk(positions, records)

    def _bad_byte(self, data: LineBytes, at: int) -> str:
        if self._per_line:
            return not_utf8(data[at], at + 1)
        line, start = data.count(b"\n", 0, at) + 1, data.rfind(b"\n", 0, at)
        return f"line {line}: {not_utf8(data[at], at - start)}"
