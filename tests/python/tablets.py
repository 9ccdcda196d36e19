"""Calls of stele.tables.v1.TabletAdmin. Its messages are encoded here, because the
clients know only Google's."""

import grpc


def _field(number, value):
    length, size = b"", len(value)
    while size > 0x7F:
        length += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


class TabletAdmin:
    """Administers the tablets of one table."""

    def __init__(self, channel: grpc.Channel, table: str):
        path = "/stele.tables.v1.TabletAdmin/"
        self._table = _field(1, table.encode())
        self._split = channel.unary_unary(path + "SplitTablet")
        self._join = channel.unary_unary(path + "JoinTablets")
        self._compact = channel.unary_stream(path + "CompactTable")

    def split(self, row):
        """Returns whether the row was not yet the first of a tablet."""
        return self._split(self._table + _field(2, row), timeout=60) == b"\x08\x01"

    def join(self, row):
        self._join(self._table + _field(2, row), timeout=60)

    def compact(self):
        for _ in self._compact(self._table, timeout=60):
            pass
