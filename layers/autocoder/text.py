"""Texts that others wrote."""


def printable(text: str) -> str:
    """Make a text harmless to show: it moves no cursor and begins no line of its own."""
    return "".join(char if char.isprintable() else "?" for char in text)
