"""The local cloud: the same template and handlers, on a laptop."""
