"""Words that must not be here: providers in the kernel, and what lies outside the project."""

import re

import pytest

from tests.tidy import tree

# The patterns are spelt so that none of them matches its own line in this file.
PROVIDER = re.compile(r"hub[s]pot|outr[e]ach|str[i]pe|sales[f]orce", re.IGNORECASE)
OUTSIDE = {
    "a document that is not here": re.compile(
        r"\bS[12]\b|\b(?:DESIGN|STYLE|PLATFORM)(?:\.md|\s+section)|\bthe\s+spec(?:s|ification)\b"
    ),
    "a number in somebody's tracker": re.compile(
        r"\bissue\s+#?\d|(?<![&\w/])#\d{1,5}\b(?!;)", re.IGNORECASE
    ),
    "a folder of somebody's machine": re.compile(r"(?<![\w}>.])/(?:[w]ork|[t]mp|[r]oot|[h]ome)\b"),
    "what lies beside the project": re.compile(r"(?<!\w)\.?\.?/?\bsh[a]red/"),
    "who wrote it": re.compile(
        r"\b(?:this|another|next|previous|later|coding) session\b"
        r"|(?<!user[-_ ])(?<!\w)[a]gents?\b|[C]laude|[A]nthropic",
        re.IGNORECASE,
    ),
    "a private company": re.compile(r"n[e]xus ?crm|p[i]ngcap|\bt[i]db\b", re.IGNORECASE),
}
REGISTRY = re.compile(
    r"py[p]i\.(?:org|python)|python[h]osted|npm[j]s|registry\.y[a]rnpkg|deb\.[d]ebian|crates\.[i]o"
    r"|proxy\.[g]olang|ruby[g]ems\.|repo\.[m]aven|maven\.[o]rg|--(?:extra-)?[i]ndex-url|--[f]ind-links",
    re.IGNORECASE,
)


def lines_with(pattern: re.Pattern[str], text: str) -> list[str]:
    """The numbered lines that hold a match."""
    return [
        f"{number}: {line.strip()[:120]}"
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def found(pattern: re.Pattern[str], texts: dict[str, str]) -> list[str]:
    return [f"{name}:{line}" for name, text in texts.items() for line in lines_with(pattern, text)]


def test_the_kernel_names_no_provider() -> None:
    """A provider is data; its name in the kernel is a branch that the next provider lacks."""
    kernel = {
        name: text
        for name, text in tree.texts().items()
        if name.split("/", 1)[0] in tree.CODE_FOLDERS
        and name.endswith((".py", ".sql"))
        and not name.startswith(tree.SIMULATOR)
    }

    assert found(PROVIDER, kernel) == [], "say it in the pack: the kernel knows no provider"


@pytest.mark.parametrize("what", OUTSIDE)
def test_nothing_points_outside_the_project(what: str) -> None:
    """Whoever clones this has nothing else: a pointer elsewhere explains nothing to them."""
    # Test data keeps the bytes that it was given.
    texts = {
        name: text for name, text in tree.texts().items() if not name.startswith("tests/data/")
    }

    assert found(OUTSIDE[what], texts) == [], f"{what}: cite a clause of docs/contract.md instead"


def test_no_package_registry_is_named() -> None:
    """Where packages come from is the setting of whoever installs them."""
    assert found(REGISTRY, tree.texts()) == [], "leave the source of packages to the installer"


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a document that is not here", "as S" + "2 says"),
        ("a document that is not here", "see DESIGN" + ".md"),
        ("a document that is not here", "the" + " specs win"),
        ("a number in somebody's tracker", "fixes issue" + " 12"),
        ("a number in somebody's tracker", "closes #" + "12"),
        ("a folder of somebody's machine", 'open("/' + 'tmp/x")'),
        ("a folder of somebody's machine", "cd /" + "work/main"),
        ("what lies beside the project", "../sh" + "ared/cases"),
        ("who wrote it", "left to a later" + " session"),
        ("who wrote it", "an ag" + "ent wrote it"),
        ("a private company", "Nexus" + "CRM"),
    ],
)
def test_a_pointer_outside_is_seen(what: str, line: str) -> None:
    """A rule that cannot fail guards nothing."""
    assert lines_with(OUTSIDE[what], f"first\n{line}") == [f"2: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        "the header User-Agent",
        "work/<work_id>",
        "/v1/work",
        'scope="session"',
        "AsyncSession",
        "https://host/tmp",
        "color #123456",
    ],
)
def test_ordinary_words_are_let_through(line: str) -> None:
    """The rule must not forbid the words of the trade."""
    assert [what for what, pattern in OUTSIDE.items() if pattern.search(line)] == []


def test_a_provider_and_a_registry_are_seen() -> None:
    """A rule that cannot fail guards nothing."""
    assert lines_with(PROVIDER, 'if pack == "Hub' + 'Spot":')
    assert lines_with(REGISTRY, "https://py" + "pi.org/simple")
    assert lines_with(REGISTRY, "--in" + "dex-url x")
