"""What the documents say is there: clauses, links and verbs."""

import re
from urllib.parse import unquote

import pytest

from tests.tidy import tree

CONTRACT = "docs/contract.md"
DEFINED = re.compile(r"^\*\*C(\d+)\.?\*\*", re.MULTILINE)
# Two letters and a number are a clause only as a word of their own: not in an identifier.
CITED = re.compile(r"(?<![\w'\"./-])C(\d{1,3})(?![\w'\"])")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
VERB = re.compile(r"\./dev\s+([a-z][a-z-]*)")


def markdown() -> dict[str, str]:
    return {name: text for name, text in tree.texts().items() if name.endswith(".md")}


def defined_in(contract: str) -> set[int]:
    return {int(number) for number in DEFINED.findall(contract)}


def cited_in(text: str) -> set[int]:
    return {int(number) for number in CITED.findall(text)}


def anchors_of(text: str) -> set[str]:
    """The names under which a page's headings (and named places) can be linked to."""
    headings = re.findall(r"^#+\s+(.*?)\s*$", CODE_BLOCK.sub("", text), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def broken_links(name: str, text: str) -> list[str]:
    broken = []
    for link in LINK.findall(CODE_BLOCK.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue  # a page of the world may move; that is not ours to hold
        path, _, anchor = unquote(link).partition("#")
        target = (tree.ROOT / name).parent / path if path else tree.ROOT / name
        if (
            not target.exists()
            or not target.resolve().is_relative_to(tree.ROOT.resolve())
            or (
                anchor
                and target.suffix == ".md"
                and anchor not in anchors_of(target.read_text(encoding="utf-8"))
            )
        ):
            broken.append(link)
    return broken


def verbs_of(script: str) -> set[str]:
    return set(re.findall(r"^ *([a-z-]+)\) *## ", script, re.MULTILINE))


def test_every_cited_clause_exists() -> None:
    """A citation of nothing sends the reader nowhere."""
    clauses = defined_in(tree.text(CONTRACT))
    sources = tree.code() | tree.tests() | markdown()
    unknown = {
        name: sorted(missing)
        for name, text in sources.items()
        if not name.startswith("tests/tidy/") and (missing := cited_in(text) - clauses)
    }

    assert unknown == {}, f"cite a clause that {CONTRACT} defines"


def test_no_clause_is_defined_twice() -> None:
    """Two rules under one number are two contracts."""
    numbers = [int(number) for number in DEFINED.findall(tree.text(CONTRACT))]

    assert sorted(set(numbers)) == sorted(numbers), "a clause keeps its number; take a new one"


def test_every_link_leads_somewhere() -> None:
    """The documents are the way in; a broken link ends it."""
    broken = {
        name: links for name, text in markdown().items() if (links := broken_links(name, text))
    }

    assert broken == {}, "mend the link, or write the page"


def test_the_verbs_that_the_documents_name_exist() -> None:
    """The first command that a newcomer copies has to work."""
    verbs = verbs_of(tree.text("dev"))
    unknown = {
        name: sorted(missing)
        for name, text in markdown().items()
        if (missing := set(VERB.findall(text)) - verbs)
    }

    assert unknown == {}, "name a verb that ./dev help lists"


def test_the_readme_shows_how_to_begin() -> None:
    """A newcomer reads one page: it has to name the demo and the test."""
    assert {"demo", "test"} <= set(VERB.findall(tree.text("README.md")))


@pytest.mark.parametrize(
    "line", ["as (C41) says", "clauses C41, C7 and", '"""Holds C41."""', "C41."]
)
def test_a_citation_is_seen(line: str) -> None:
    """A rule that cannot fail guards nothing."""
    assert 41 in cited_in(line)


@pytest.mark.parametrize("line", ["'C41'", "0xC41", "ABC41", "C4100", "C41f0", "path/C41"])
def test_what_only_looks_like_a_citation_is_let_through(line: str) -> None:
    """Identifiers and digests are no citations."""
    assert cited_in(line) == set()


def test_a_broken_link_and_a_missing_verb_are_seen() -> None:
    """A rule that cannot fail guards nothing."""
    page = "[a](nowhere.md) [b](../..) [c](contract.md) [d](https://example.com)\n"
    anchors = "[a](contract.md#no-such-heading) [b](contract.md#the-promise)\n"

    assert broken_links("docs/x.md", page) == ["nowhere.md", "../.."]
    assert broken_links("docs/x.md", anchors) == ["contract.md#no-such-heading"]
    assert anchors_of("# The wire, and its classes\n") == {"the-wire-and-its-classes"}
    assert verbs_of("    demo) ## runs\n*)\n") == {"demo"}
    assert VERB.findall("run `./dev  fly` now") == ["fly"]
    assert defined_in("**C1.** One.\n\n**C2** Two.\n") == {1, 2}
