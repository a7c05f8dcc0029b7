"""What ends a load early."""


class LoadError(Exception):
    """The load could not be made or measured; the text says why and what to do."""
