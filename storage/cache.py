"""Recently served segments of the hot tier, in memory up to a number of bytes; the least recently used go first."""

from collections import OrderedDict


class SegmentCache:
    """(root, index) -> canonical bytes of a checked `Segment`. Not thread-safe: it lives in the event loop."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._bodies: OrderedDict[tuple[bytes, int], bytes] = OrderedDict()

    def get(self, root: bytes, index: int) -> bytes | None:
        body = self._bodies.get((root, index))
        if body is not None:
            self._bodies.move_to_end((root, index))
        return body

    def add(self, root: bytes, index: int, body: bytes) -> None:
        """Keep `body` if it fits at all, and let older ones go until it does."""
        if len(body) > self.max_bytes or (root, index) in self._bodies:
            return
        self._bodies[root, index] = body
        self.num_bytes += len(body)
        while self.num_bytes > self.max_bytes:
            _, oldest = self._bodies.popitem(last=False)
            self.num_bytes -= len(oldest)

    def forget(self, root: bytes) -> None:
        """Let go of everything of one file."""
        for key in [key for key in self._bodies if key[0] == root]:
            self.num_bytes -= len(self._bodies.pop(key))
