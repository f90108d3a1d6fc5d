"""What the processes of a slot know together: memory that outlives whoever is killed."""

import mmap
import struct

_TRAPS_MAX = 16
_OFFSET = struct.Struct("=d")
_FIRED_AT = 8
_ACTION_AT = _FIRED_AT + _TRAPS_MAX
_RESTARTED_AT = _ACTION_AT + 1
_DONE_AT = _RESTARTED_AT + 1


class Board:
    """Shared by a slot, its companion and the lives of its present cell."""

    def __init__(self) -> None:
        # Anonymous and shared: made before the forks, seen by all of them.
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def clear(self) -> None:
        """A new cell begins."""
        self._memory[:] = bytes(mmap.PAGESIZE)

    @property
    def skipped_seconds(self) -> float:
        """How far the cell's clock of due times is ahead of the real one."""
        return float(_OFFSET.unpack_from(self._memory, 0)[0])

    def skip(self, seconds: float) -> None:
        """Nobody waits in this cell: what is due in `seconds` is due now."""
        _OFFSET.pack_into(self._memory, 0, self.skipped_seconds + seconds)

    def has_fired(self, trap: int) -> bool:
        """Whether the trap of this number has struck."""
        return self._memory[_FIRED_AT + trap] != 0

    def fire(self, trap: int) -> None:
        """It strikes now; noted first, because the striker may be the one that is struck."""
        self._memory[_FIRED_AT + trap] = 1

    @property
    def pending_action(self) -> int:
        """The number of the action that a signalled life is to suffer."""
        return self._memory[_ACTION_AT]

    @pending_action.setter
    def pending_action(self, number: int) -> None:
        self._memory[_ACTION_AT] = number

    @property
    def restarts(self) -> int:
        """How often the database server was started again."""
        return self._memory[_RESTARTED_AT]

    def restarted(self) -> None:
        """It was, once more."""
        self._memory[_RESTARTED_AT] += 1

    @property
    def has_receipt(self) -> bool:
        """Whether the Runtime holds its receipt, so that it need not hand over again."""
        return self._memory[_DONE_AT] != 0

    def hold_receipt(self) -> None:
        """It does now."""
        self._memory[_DONE_AT] = 1
