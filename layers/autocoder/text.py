"""Texts that others wrote."""

import re


def printable(text: str) -> str:
    """Make a text harmless to show: it moves no cursor and begins no line of its own."""
    return "".join(char if char.isprintable() else "?" for char in text)


TOKEN = re.compile(r"`[^`]+`|[\w./-]+|[^\w./`-]+|`")


def plain_markdown(text: str) -> str:
    """Make a text harmless in Markdown: no link, no image, no HTML, no cell of its own.

    What says that it is code, or is a name with an underscore, is shown as code: without escapes.
    """
    return "".join(map(token_markdown, TOKEN.findall(printable(text))))


def token_markdown(token: str) -> str:
    """Write a word, what is between words, or a quotation."""
    if token[0] == "`" and len(token) > 1:
        return code_markdown(token[1:-1])
    name = token.rstrip("./-")
    return code_markdown(name) + token[len(name) :] if "_" in name else escaped(token)


def escaped(text: str) -> str:
    """Take the meaning from every character that has one in Markdown."""
    return re.sub(r"([\\*\[\]<>|#!~&])", r"\\\1", text.replace("`", "'"))


def code_markdown(text: str) -> str:
    """Show a name as code in Markdown, also in a table."""
    return f"`{printable(text).replace('`', chr(39)).replace('|', '?')}`"
