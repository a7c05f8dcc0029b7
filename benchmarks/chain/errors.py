"""What ends a run early."""


class BenchError(Exception):
    """A network that did not come up, or does not do what the measurement is about; the text says how."""
