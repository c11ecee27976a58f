"""Commands as text: the words that a shell would make of them, or a refusal that names character and place."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journal.core.errors import CommandRefused
from journal.tools.command_line import split


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t ", []),
        ("ls -l", ["ls", "-l"]),
        ("  ls\t-l  ", ["ls", "-l"]),
        ("\nls\n\n", ["ls"]),
        ("ls ''", ["ls", ""]),
        ("ls \"\"''", ["ls", ""]),
        ("a'b c'd", ["ab cd"]),
        ('a"b c"d', ["ab cd"]),
        ("'a|b;c&d'", ["a|b;c&d"]),
        ('"a|b;c&d(e)<f>*?[{~#"', ["a|b;c&d(e)<f>*?[{~#"]),
        ("'$HOME `x`'", ["$HOME `x`"]),
        ('"\\$HOME \\`x\\`"', ["$HOME `x`"]),
        ('"a\\"b\\\\c\\d"', ['a"b\\c\\d']),
        ("'a\\b'", ["a\\b"]),
        ("a\\ b\\|c\\$d\\'e", ["a b|c$d'e"]),
        ("'two\nlines'", ["two\nlines"]),
        ('"two\nlines"', ["two\nlines"]),
        ("a \\\n b", ["a", "b"]),
        ("a\\\nb", ["ab"]),
        ('"a\\\nb"', ["ab"]),
        ("'' \\\n x", ["", "x"]),
        ("git show HEAD~1 a=b# %x ^y z}", ["git", "show", "HEAD~1", "a=b#", "%x", "^y", "z}"]),
        ("a\u00a0b é \U0001f600", ["a\u00a0b", "é", "\U0001f600"]),
        ("it''s \\# \\~", ["its", "#", "~"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert split(text) == words


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ls | wc", "| at character 4 is for a shell, and there is none: run one program at a time"),
        ("ls|wc", "| at character 3"),
        ("ls; rm x", "; at character 3"),
        ("ls & rm x", "& at character 4"),
        ("ls && rm x", "& at character 4"),
        ("ls > x", "> at character 4"),
        ("cat < x", "< at character 5"),
        ("(ls)", "( at character 1"),
        ("a )", ") at character 3"),
        ("echo $HOME", "$ at character 6 is for a shell, and there is none: write out what it stands for"),
        ("echo $(id)", "$ at character 6"),
        ("echo `id`", "` at character 6"),
        ('echo "$HOME"', "$ at character 7 (in double quotes)"),
        ('echo "`id`"', "` at character 7 (in double quotes)"),
        ("echo $'x'", "$ at character 6"),
        ("ls\nrm x", "the line break at character 3"),
        ("ls\n\n rm x", "the line break at character 3"),
        ("ls *.py", "* at character 4"),
        ("ls a?", "? at character 5"),
        ("ls [ab]", "[ at character 4"),
        ("touch {a,b}", "{ at character 7"),
        ("ls ~", "~ at character 4"),
        ("ls ~root", "~ at character 4"),
        ("x --home=~", "~ at character 10"),
        ("ls # all", "# at character 4 is for a shell, and there is none: leave the comment out"),
        ("''|x", "| at character 3"),
        ("\\\\|x", "| at character 3"),
        ("'a", "the quote ' at character 1 is never closed"),
        ('x "a\\"', 'the quote " at character 3 is never closed'),
        ("x \\", "the backslash at its end (character 3) escapes nothing"),
    ],
)
def test_what_only_a_shell_can_do_is_refused_by_character_and_place(text: str, told: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        split(text)
    assert refused.value.reason.startswith(told)
    assert str(refused.value).startswith("the command was not run: ")


@given(st.text("ab-/.=' \t\"\\"))
def test_like_shlex_where_nothing_is_special(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        with pytest.raises(CommandRefused):
            split(text)
    else:
        assert split(text) == expected


@given(st.lists(st.text(), max_size=5))
def test_what_shlex_quotes_comes_back(words: list[str]) -> None:
    assert split(shlex.join(words)) == words


@settings(max_examples=60)
@given(text=st.text("ab '\"\\|&;<>()$`\n*?[]{}~#=:!^%"))
def test_what_is_taken_means_the_same_to_a_shell(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    try:
        words = split(text)
    except CommandRefused:
        return
    here: Path = tmp_path_factory.getbasetemp()
    script = r"printf '%s\0' x " + text.lstrip(" \n")
    done = subprocess.run(["/bin/sh", "-c", script], cwd=here, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == ["x", *words]
