"""Which tests stand in a file, and whether they check anything. One reader a language.

Readers look at source that nobody ran: they need not be exact, only hard to please by
an empty test. The source is hostile: no pattern may look far ahead from each of many places.
To add a language: a line in LANGUAGES and, if its tests look like no other's, a reader.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from autocoder.tamper.python_tests import Suite, Test, python, short


class Words(NamedTuple):
    """How a language writes its tests, as patterns."""

    test: re.Pattern[str]  # where a test begins; its group `name` is what it is called
    check: re.Pattern[str]  # fails a test
    empty: re.Pattern[str]  # looks like a check, but can't fail
    skip: re.Pattern[str]
    text: re.Pattern[str] = re.compile(r'"(?:[^"\\\n]|\\.){0,1000}"')  # says, and does nothing


JAVASCRIPT = Words(
    test=re.compile(
        r"(?<![\w.])(?:x?it|x?test|fit)(?:\.\w+)*(?:\.each\s*\([^)]{0,2000}\))?\s*\(\s*"
        r"(?P<quote>['\"`])(?P<name>.{0,300}?)(?P=quote)"
    ),
    check=re.compile(
        r"\b(?:expect|assert|should)\b[\w.]{0,60}\s*\(|\.should\b"
        r"|\bt(?:\.\w{1,40}){1,4}\s*\("
    ),
    empty=re.compile(
        r"\bexpect\(\s*(\w{1,60}|'')\s*\)\.(?:toBe|toEqual|toStrictEqual)\(\s*\1\s*\)"
        r"|\bexpect\(\s*(?:true|1)\s*\)\.toBeTruthy\(|\bassert(?:\.ok)?\(\s*(?:true|1)\s*[,)]"
        r"|\bassert(?:\.\w+)?\(\s*(\w{1,60})\s*,\s*\2\s*[,)]|\bt\.(?:plan|diagnostic)\s*\("
        r"|\bexpect\((?:[^()]|\([^()]{0,200}\)){0,300}\)(?!\s*\.)"  # nothing is expected
    ),
    skip=re.compile(
        r"(?<![\w.])(?:xit|xtest|xdescribe|fit|fdescribe)\s*\("
        r"|(?<![\w.])(?:it|test|describe|suite|context|t)\.(?:skip|todo|only|failing|fails)\b"
        r"|\b(?:skip|todo|only)\s*:\s*(?:true|['\"`])"
    ),
    text=re.compile(
        r"'(?:[^'\\\n]|\\.){0,1000}'|\"(?:[^\"\\\n]|\\.){0,1000}\"|`(?:[^`\\]|\\.){0,1000}`"
    ),
)
GO = Words(
    test=re.compile(r"^func (?P<name>(?:Test|Fuzz|Example)\w*)\(", re.MULTILINE),
    check=re.compile(
        r"\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(|\b(?:assert|require)\.\w+\(|// Output:"
    ),
    empty=re.compile(r"\bassert\.True\(\s*t\s*,\s*true\s*\)"),
    skip=re.compile(r"\bt\.Skip(?:f|Now)?\(|\btesting\.Short\(\)"),
)
RUST = Words(
    test=re.compile(
        r"#\[(?:\w+::)?test(?:\([^)]{0,200}\))?\]\s*(?:#\[[^\]]{0,200}\]\s*){0,8}"
        r"(?:pub )?(?:async )?fn (?P<name>\w+)"
    ),
    check=re.compile(
        r"\b(?:debug_)?assert\w*!|\bpanic!|\bunreachable!|\.unwrap\w*\(|\.expect\w*\(|\?;"
        r"|should_panic"
    ),
    empty=re.compile(
        r"\bassert!\(\s*true\s*\)|\bassert_eq!\(\s*(\w{1,60})\s*,\s*\1\s*\)"
        r"|\b(?:Some|Ok)\(\s*\w{0,60}\s*\)\s*\.(?:unwrap|expect)\w*\("
    ),
    skip=re.compile(r"#\[ignore\b|#\[cfg\(any\(\)\)\]"),
)
COMMENTS = re.compile(r"/\*.{0,5000}?\*/|(?<![:\w'\"])//(?! Output:)[^\n]*", re.DOTALL)

# What is never executed, or whose failure is caught.
HIDDEN = re.compile(
    r"\bif\s*\(?\s*(?:false|0)\s*\)?\s*\{[^{}]{0,1000}\}"
    r"|\btry\s*\{[^{}]{0,1000}\}\s*catch\s*(?:\(\s*\w{0,60}\s*\)\s*)?\{\s*\}"
)


def in_place_of_text(text: re.Match[str]) -> str:
    """Leave of a text only that it is one; a template is what its code computes."""
    return "of()" if text[0].startswith("`") and "${" in text[0] else "''"


def by_words(words: Words) -> Callable[[str, str], Suite]:
    """Make a reader: a test goes from where it begins to where the next one does."""

    def read(path: str, text: str) -> Suite:
        text = COMMENTS.sub("", text)
        starts = list(words.test.finditer(text))
        tests = []
        for number, start in enumerate(starts, start=1):
            end = starts[number].start() if number < len(starts) else len(text)
            body = text[start.start() : end]
            skipped = bool(words.skip.search(body[: body.find("{")]))
            does = " ".join(text[start.end() : end].split()).rstrip("}); ")
            body = HIDDEN.sub("", words.text.sub(in_place_of_text, body))
            checks = len(words.check.findall(body)) - len(words.empty.findall(body))
            tests.append(Test(path, start["name"], max(checks, 0), skipped, short(does)))
        return Suite(tests, len(words.skip.findall(text)))

    return read


# Where tests stand, by the file's path, and what reads them.
LANGUAGES: tuple[tuple[re.Pattern[str], Callable[[str, str], Suite | None]], ...] = (
    (re.compile(r"(^|/)(test[^/]*|[^/]*_test|conftest)\.py$"), python),
    (
        re.compile(
            r"(^|/)([^/]*[.\-_](test|spec)|test|test[.\-_][^/]*)\.[cm]?[jt]sx?$"
            r"|(^|/)(tests?|__tests__|spec)/.*\.[cm]?[jt]sx?$"
        ),
        by_words(JAVASCRIPT),
    ),
    (re.compile(r"_test\.go$"), by_words(GO)),
    (re.compile(r"\.rs$"), by_words(RUST)),
)


def is_test_file(path: str) -> bool:
    """Say whether a file's name is one of tests; any file of Rust's may hold some."""
    return not path.endswith(".rs") and any(where.search(path) for where, _ in LANGUAGES)


def read_suite(path: str, text: str) -> Suite | None:
    """The tests in a file; None if it can't be parsed."""
    for where, read in LANGUAGES:
        if where.search(path):
            return read(path, text)
    return Suite([], 0)
