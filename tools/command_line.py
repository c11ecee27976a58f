"""A command that was given as text, split into its words as a POSIX shell would; pure.

There is no shell here, so what only a shell could carry out (a pipe, a redirection, a variable, a glob) is refused, by
character and place, and never passed on as if it were a word. `shlex` will not do: it does not tell a quoted ``|``
from a bare one, nor ``"$HOME"`` from ``'$HOME'``, and keeps the backslash of ``"\\$"``.
Next: `exec.py`, which runs the words.
"""

from collections.abc import Callable

from journal.core.errors import CommandRefused

_APART = "run one program at a time"
_SPELLED = "write out what it stands for"
_FOR_SHELLS = dict.fromkeys("|&;<>()\n", _APART) | dict.fromkeys("$`*?[{", _SPELLED)
_AT_START = {"~": _SPELLED, "#": "leave the comment out"}
"""Special only where a word begins; ``~`` also behind ``=`` and ``:``."""
_ESCAPED_IN_QUOTES = {"$": "$", "`": "`", '"': '"', "\\": "\\", "\n": ""}
"""What a backslash does something to within double quotes, and what is left of the two."""
_BLANKS = " \t"


def split(text: str) -> list[str]:
    """The words of `text`. Raises `CommandRefused`, naming the character that it cannot do and its place (from 1)."""
    return _Splitter(text).words()


class _Splitter:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._words: list[str] = []
        self._word: list[str] | None = None
        """None between words; a list with nothing in it is the word ''."""

    def words(self) -> list[str]:
        special: dict[str, Callable[[], None]] = {"\\": self._escape, "'": self._single, '"': self._double}
        end = len(
            self._text.rstrip(_BLANKS + "\n")
        )  # line breaks behind it end the command, and begin no other
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in special:
                special[character]()
            elif character in _BLANKS or (character == "\n" and (self._at >= end or not self._has_begun())):
                self._finish()
                self._at += 1
            else:
                self._plain(character)
        self._finish()
        return self._words

    def _has_begun(self) -> bool:
        return bool(self._words) or self._word is not None

    def _finish(self) -> None:
        if self._word is not None:
            self._words.append("".join(self._word))
            self._word = None

    def _add(self, part: str) -> None:
        if self._word is None:
            self._word = []
        self._word.append(part)

    def _plain(self, character: str) -> None:
        if advice := _FOR_SHELLS.get(character):
            raise self._refused(character, advice)
        if (advice := _AT_START.get(character)) and self._begins_something(character):
            raise self._refused(character, advice)
        self._add(character)
        self._at += 1

    def _begins_something(self, character: str) -> bool:
        return self._word is None or (character == "~" and self._text[self._at - 1] in "=:")

    def _escape(self) -> None:
        if self._at + 1 == len(self._text):
            raise CommandRefused(
                reason=f"the backslash at its end (character {self._at + 1}) escapes nothing"
            )
        following = self._text[self._at + 1]
        if following != "\n":  # else the line goes on
            self._add(following)
        self._at += 2

    def _single(self) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._open_quote(self._at)
        self._add(self._text[self._at + 1 : end])
        self._at = end + 1

    def _double(self) -> None:
        start = self._at
        self._add("")
        self._at += 1
        while (character := self._text[self._at : self._at + 1]) != '"':
            if not character:
                raise self._open_quote(start)
            if character in "$`":
                raise self._refused(character, _SPELLED, where=" (in double quotes)")
            following = self._text[self._at + 1 : self._at + 2]
            if character == "\\" and following in _ESCAPED_IN_QUOTES:
                self._add(_ESCAPED_IN_QUOTES[following])
                self._at += 2
            else:
                self._add(character)
                self._at += 1
        self._at += 1

    def _open_quote(self, start: int) -> CommandRefused:
        return CommandRefused(
            reason=f"the quote {self._text[start]} at character {start + 1} is never closed"
        )

    def _refused(self, character: str, advice: str, *, where: str = "") -> CommandRefused:
        shown = "the line break" if character == "\n" else character
        return CommandRefused(
            reason=f"{shown} at character {self._at + 1}{where} is for a shell, and there is none: {advice}, "
            "or put it in single quotes if it is meant as it stands"
        )
