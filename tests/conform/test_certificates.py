"""Certificates of packs: the shipped ones pass, and each seeded mistake fails its own check."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from oncefence.app.conform.certificate import CheckReport, Verdict
from oncefence.app.conform.run import CHECKS, certify
from oncefence.catalog.loader import load_pack, shipped_packs
from tests.conform.bad_packs import BAD_PACKS, BadPack
from tests.support.dialect import DATA


def told(report: CheckReport) -> str:
    return f"{report.operation} {report.check}: {report.reason}"


@pytest.mark.parametrize("name", shipped_packs())
async def test_a_shipped_pack_passes_every_check(name: str) -> None:
    """What we ship is held against a provider that breaks in every way that we know."""
    certificate = await certify(load_pack(name))

    failed = [told(each) for each in certificate.checks if each.verdict is Verdict.FAILED]
    assert failed == []
    assert certificate.is_passed


@pytest.mark.parametrize("name", ["books", "other", "quarry"])
async def test_a_pack_of_no_known_provider_is_held_against_its_own_words(name: str) -> None:
    """A provider that nobody built a dialect for can be certified too, and it is said how."""
    certificate = await certify(load_pack(DATA / "packs" / f"{name}.toml"))

    failed = [told(each) for each in certificate.checks if each.verdict is Verdict.FAILED]
    assert failed == []
    assert "the pack's own words" in certificate.truth


async def test_the_pack_that_the_documents_show_passes(tmp_path: Path) -> None:
    """Whoever follows the page to the letter has a pack that works (C33)."""
    page = (Path(__file__).parents[2] / "docs" / "packs.md").read_text("utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    text = next(block for block in blocks if block.startswith('format = "oncefence.pack/1"'))
    path = tmp_path / f"{tomllib.loads(text)['name']}.toml"
    path.write_text(text, encoding="utf-8")
    certificate = await certify(load_pack(path))

    failed = [told(each) for each in certificate.checks if each.verdict is Verdict.FAILED]
    assert failed == []
    assert certificate.is_passed


@pytest.mark.parametrize("bad", BAD_PACKS, ids=lambda bad: bad.name)
async def test_a_bad_pack_fails_exactly_its_check(bad: BadPack, tmp_path: Path) -> None:
    """A check that fails for another's mistake sends people to the wrong line (C562)."""
    certificate = await certify(load_pack(bad.write(tmp_path)), only=bad.operation)

    failed = {each.check: told(each) for each in certificate.checks if _is_failed(each)}
    assert list(failed) == [bad.check], failed
    assert not certificate.is_passed


def test_enough_checks_have_a_pack_that_fails_them() -> None:
    """A check that nothing fails may as well not be there."""
    names = {check.name for check in CHECKS}
    seeded = {bad.check for bad in BAD_PACKS}

    assert seeded <= names
    assert len(seeded) == len(BAD_PACKS) >= 10


async def test_every_check_is_reported_for_every_operation() -> None:
    """What was not run is told with its reason, so that nobody takes silence for success."""
    certificate = await certify(load_pack("stripe"))

    by_operation: dict[str, list[str]] = {}
    for report in certificate.checks:
        by_operation.setdefault(report.operation, []).append(report.check)
    names = [check.name for check in CHECKS]
    assert by_operation == {"customer.create": names, "customer.update": names}
    silent = [each.check for each in certificate.checks if not each.reason and not each.evidence]
    assert silent == []


async def test_what_waits_for_a_failed_check_says_so(tmp_path: Path) -> None:
    """One mistake is one failure; what rests on it is not blamed as well."""
    bad = next(each for each in BAD_PACKS if each.check == "success.evidence")
    certificate = await certify(load_pack(bad.write(tmp_path)))

    blocked = {each.reason for each in certificate.checks if each.verdict is not Verdict.PASSED}
    assert "says nothing as long as success.evidence fails" in blocked


async def test_a_certificate_names_its_contract_and_holds_no_content() -> None:
    """It is handed around: it says what was certified, and shows no value, id or body."""
    pack = load_pack("hubspot")
    certificate = await certify(pack)

    document = json.dumps(certificate.as_document(), default=str)
    assert certificate.pack_digest == pack.digest
    assert certificate.pack_format == pack.format
    assert certificate.issued_at.tzinfo is not None
    for content in ("conform 1", "/crm/v3", "Bearer", "person1"):
        assert content not in document


def _is_failed(report: CheckReport) -> bool:
    return report.verdict is Verdict.FAILED
