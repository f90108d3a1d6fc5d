"""Adds up what pytest's runs reported, for `./dev test --json FILE`."""

import json
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path


def counts(reports: Iterable[str], failed_steps: list[str]) -> dict[str, object]:
    """Return one object for all reports; every count is an integer."""
    total = failed = skipped = errors = 0
    seconds = 0.0
    for report in reports:
        for suite in ET.fromstring(report).iter("testsuite"):
            total += int(suite.attrib["tests"])
            failed += int(suite.attrib["failures"])
            skipped += int(suite.attrib["skipped"])
            errors += int(suite.attrib["errors"])
            seconds += float(suite.attrib["time"])
    return {
        "passed": total - failed - skipped - errors,
        "failed": failed,
        "skipped": skipped,
        "errors": errors,
        "seconds": round(seconds, 3),
        "failed_steps": failed_steps,
    }


def main(target: str, folder: str, *failed_steps: str) -> None:
    """Write the counts of the reports in `folder` to `target`."""
    reports = [path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.xml"))]
    text = json.dumps(counts(reports, list(failed_steps)), indent=2)
    Path(target).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
