"""
The canaries: secrets through a real deployment, and a search for them in all that is left.

    ./dev canaries                              one campaign, about a minute
    ./dev canaries --keep DIR --json FILE       with its data and its figures
"""

import argparse
import asyncio
import atexit
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from oncefence.app.demo.folders import named_folder
from oncefence.app.stack import stopping_in_good_order
from oncefence.domain.errors import OncefenceError
from tests.canaries.campaign import run_campaign

_FOUND, _INTERRUPTED = 1, 130


def main(words: Sequence[str] | None = None) -> int:
    """0 when nothing was found, 1 when something was or the campaign did not come to its end."""
    # The SDK's threads can crash an interpreter that is taken away under them.
    atexit.register(time.sleep, 0.3)
    given = _read(words)
    folder = _fresh_folder() if given.keep is None else named_folder(given.keep)
    began_at = time.monotonic()

    def tell(step: str) -> None:
        _say(f"{time.monotonic() - began_at:6.1f} s  {step}")

    try:
        with stopping_in_good_order():
            report = asyncio.run(run_campaign(folder, tell))
    except (OncefenceError, AssertionError) as error:
        _say(f"canaries: {error}; what there is of it is in {folder}")
        return _FOUND
    except KeyboardInterrupt:
        _say(f"canaries: interrupted; what there is of it is in {folder}")
        return _INTERRUPTED
    figures = report.as_json()
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    for kind, count in report.planted.items():
        _say(f"{kind:30} {count}")
    _say(f"{sum(report.read.values()):,} bytes of {len(report.read)} places were searched")
    for place, secret in report.found:
        _say(f"FOUND {secret}: {place}")
    if report.found:
        _say(f"secrets were left behind; everything is in {folder}")
        return _FOUND
    if given.keep is None:
        shutil.rmtree(folder, ignore_errors=True)  # what stays of it is temporary anyway
    _say(f"none of {figures['planted']} secrets was left behind")
    return 0


def _fresh_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="oncefence-canaries-"))
    # Where root started it, PostgreSQL runs as somebody else.
    folder.chmod(0o755)
    return folder


def _read(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev canaries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="where its data stays; else only after a finding"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser.parse_args(words)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
