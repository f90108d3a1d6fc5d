"""What the exit code of the program says."""

from enum import IntEnum


class ExitCode(IntEnum):
    """One meaning each, the same for every verb."""

    DONE = 0

    REFUSED = 1
    """A rule said no, or something that is needed does not answer; standard error says what."""

    USAGE = 2
    """The command line itself is wrong, or a pack or binding file that it names (C562)."""

    LINES_REFUSED = 3
    """Some lines of a file were refused; the others were taken (C582)."""

    VIOLATIONS = 4
    """The audit found what may never be found (C464)."""

    FAULT = 70
    """A mistake of the program itself."""

    INTERRUPTED = 130
