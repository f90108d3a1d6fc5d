"""Certificates of packs: the shipped ones pass, and each seeded mistake fails its own check."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from oncefence.app.conform.certificate import CheckReport, Verdict
from oncefence.app.conform.run import CHECKS, certify
from oncefence.catalog.errors import CatalogError
from oncefence.catalog.loader import load_pack, shipped_packs
from tests.conform.bad_packs import BAD_PACKS, BadPack
from tests.conform.test_careless_products import FAILED_BY_PRODUCTS
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


@pytest.mark.parametrize("name", ["books", "other", "quarry", "tides"])
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


def test_each_check_has_something_that_fails_it() -> None:
    """A check that nothing fails may as well not be there."""
    names = {check.name for check in CHECKS}
    seeded = {bad.check for bad in BAD_PACKS}

    assert len(seeded) == len(BAD_PACKS)
    assert seeded | FAILED_BY_PRODUCTS == names
    assert not seeded & FAILED_BY_PRODUCTS


@pytest.mark.parametrize("name", ["quarry", "tides"])
async def test_a_conditional_write_is_tried_with_what_is_no_longer_so(name: str) -> None:
    """By version and by time, after a person's change and after our own (C142)."""
    certificate = await certify(load_pack(DATA / "packs" / f"{name}.toml"))
    (report,) = [each for each in certificate.checks if each.check == "condition.stale"]

    assert report.verdict is Verdict.PASSED
    seen = [(row["outcome"], row["failure_class"], row["changes"]) for row in report.evidence]
    stale = ("REJECTED", "precondition_failed", 0)
    assert seen == [stale, ("ACCEPTED", None, 1), stale]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_pack_cannot_look_by_a_request_that_writes(method: str, tmp_path: Path) -> None:
    """No pack fails lookup.reads_only, because none that could is read (C260)."""
    text = (DATA / "packs" / "tides.toml").read_text("utf-8")
    path = tmp_path / "tides.toml"
    head, lookup, tail = text.partition('[operations."buoy.move".lookup]\n')
    path.write_text(f'{head}{lookup}method = "{method}"\n{tail}', encoding="utf-8")

    with pytest.raises(CatalogError, match=r"lookup\.method.*a lookup only reads"):
        load_pack(path)


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
