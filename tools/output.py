"""The output of a program, bounded: its beginning and its end, and a line that says what lies between.

The end is kept because that is where programs say what went wrong.
"""


class Output:
    """Takes any number of bytes, and keeps `limit` of them; while it grows, up to half as many more."""

    def __init__(self, limit: int) -> None:
        self._head_room = limit - limit // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        """The next bytes of the stream."""
        self._size += len(data)
        if room := self._head_room - len(self._head):
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_room:  # not at every chunk: each time costs a copy
            del self._tail[: len(self._tail) - self._tail_room]

    @property
    def is_cut(self) -> bool:
        """Whether something was left out."""
        return self._size > self._head_room + self._tail_room

    @property
    def data(self) -> bytes:
        """All of it, where nothing was left out."""
        return bytes(self._head + self._tail)

    def text(self) -> str:
        """As UTF-8; bytes that are none stand as ``\\xff``, and a line tells where how much was left out."""
        if not self.is_cut:
            return _decode(self.data)
        head = _without_half_an_end(bytes(self._head))
        tail = _without_half_a_start(bytes(self._tail[len(self._tail) - self._tail_room :]))
        left_out = self._size - len(head) - len(tail)
        return f"{_decode(head)}\n[... {left_out:,} bytes left out ...]\n{_decode(tail)}"


def _decode(data: bytes) -> str:
    return data.decode(errors="backslashreplace")


def _without_half_an_end(data: bytes) -> bytes:
    """Without the beginning of a character whose rest was cut off."""
    for back in range(1, min(3, len(data)) + 1):
        first = data[-back]
        if first & 0xC0 != 0x80:  # where a character begins, and how many bytes it says it has
            whole = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
            return data[:-back] if whole > back else data
    return data


def _without_half_a_start(data: bytes) -> bytes:
    """Without the rest of a character whose beginning was cut off."""
    for length in range(min(4, len(data))):
        if data[length] & 0xC0 != 0x80:
            return data[length:]
    return data
