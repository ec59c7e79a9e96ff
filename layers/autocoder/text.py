"""Texts that others wrote."""

import re


def printable(text: str) -> str:
    """Make a text harmless to show: it moves no cursor and begins no line of its own."""
    return "".join(char if char.isprintable() else "?" for char in text)


def plain_markdown(text: str) -> str:
    """Make a text harmless in Markdown: no link, no image, no HTML, no cell of its own."""
    return re.sub(r"([\\`*_\[\]<>|#!~&])", r"\\\1", printable(text))


def code_markdown(text: str) -> str:
    """Show a name as code in Markdown, also in a table."""
    return f"`{printable(text).replace('`', chr(39)).replace('|', '?')}`"
