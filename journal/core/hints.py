"""Commands that messages name, made to run as printed: on the store that the message is about. Pure."""

import re
import shlex

_COMMAND = re.compile(
    r"\bjournal (?:(?:runs|stats|workers?)\b"
    r"|(?:cancel|checkpoints|diff|docs|export|files|fork|log|replay|retry|show|verify)\b(?= \S))"  # of a run
    r"(?! (?:--(?:app|world|namespace|help)|RUN)\b)"
)


def options(**given: str | None) -> str:
    """`--name value` of each that is given, as a shell reads it."""
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in given.items() if value is not None)


def directed(text: str, more: str) -> str:
    """`text`, with those options behind the verb of each command that has none of them yet."""
    return _COMMAND.sub(lambda found: f"{found[0]} {more}", text) if more else text
