"""Plain words: a list of what to avoid, with a hint for each, and a limit on how much there is to read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from floodway.experiments.registry import EXPERIMENTS, load
from tests.docs.pages import ROOT, pages
from tests.docs.program_texts import READ_AS_A_WHOLE, SOURCE, literals, texts

MOST_WORDS = 25_000
MOST_WORDS_OF_A_RECORD = 150
UNIT = (
    r"(?:CPU-seconds|seconds|ms|µs|tuples|rows|bytes|times|[kM]B|lines|plans|events|batches|samples|points|files"
    r"|queries|records|requests|minutes|tasks|results)"
)
OF = r"(?:second|minute|hour|day|batch|micro-batch|tuple|record|row|node|key|partition|file|query)"
THING = r"(?:file|process|line|folder|key|partition|query|writer|fsync|package|table|program)"

NO_CLAUSE = r"(?! (?:may|can|must|takes?|holds?|has)\b)"
"""Not in 'how many tuples a batch may hold'."""
WHOLE = r"(?:algorithm|command|node|table|figure|log|batch|cell|pair|member|worker|CPU|problem|stream)"


@dataclass(frozen=True, slots=True)
class Avoided:
    """A pattern, what to write instead, and a text that has it."""

    pattern: str
    hint: str
    example: str


AVOIDED = (
    Avoided(rf"\b{UNIT} an? {OF}\b{NO_CLAUSE}", "write 'per': tuples per second", "0.4 µs of CPU, 20 tuples a second"),
    Avoided(rf"\b(?:a|an|one) {THING} an? {WHOLE}\b", "write 'per': one file per command", "one file a command"),
    Avoided(r"\bdear(?:er|est)?\b", "write 'expensive'", "the dear branch"),
    Avoided(
        r"\b(?:is|are|was|were|be|being|been|nobody|it) told\b", "name who shows it: 'the status shows'", "it is told"
    ),
    Avoided(
        r"\btold (?:apart|by|in|at once|otherwise)\b", "write 'distinguished', 'shown', 'unless … says'", "told apart"
    ),
    Avoided(r"\b(?:is|are) said\b", "name who says it: 'the audit lists'", "What cannot be checked is said: topics"),
    Avoided(r"\bon the mean\b", "write 'on average'", "2 s on the mean"),
    Avoided(r"\bbefore a keep\b", "write 'overrides the keep'", "before a keep where both are given"),
    Avoided(r"\bwins? over\b", "write 'overrides'", "the wish wins over the code"),
    Avoided(
        r"\bwhatever (?:it|they) holds?\b", "name the empty case: 'an empty batch takes'", "0.2 s whatever it holds"
    ),
    Avoided(r"\bthr(?:ow|own|ew) away\b", "write 'drop'", "tuples are thrown away"),
    Avoided(r"\b(?:lets?|letting) go\b", "write 'release' or 'delete'", "the giver lets go"),
    Avoided(r"\banew\b", "write 'again'", "it starts anew"),
    Avoided(r"\bgo(?:es)? on\b", "write 'continue'", "the job goes on"),
    Avoided(r"\blies? (?:in|on|below|beside|under)\b", "write 'is in'", "the files lie in a folder"),
    Avoided(r"\bfor want of\b", "write 'without'", "for want of care"),
    Avoided(r"\bserves? the dead\b", "say what happens to expired tuples", "EDF serves the dead first"),
    Avoided(r"\bdo(?:es)? the sums\b", "write 'recounts'", "the audit does the sums again"),
    Avoided(r"\bmakes? good\b|\bmade good\b", "write 'processes later'", "drops are made good"),
)


def found(text: str) -> list[str]:
    """Each place that should read otherwise, with some words around it and the hint."""
    line = " ".join(text.split())
    return [
        f"…{line[max(match.start() - 40, 0) : match.end() + 20]}…: {avoided.hint}"
        for avoided in AVOIDED
        for match in re.finditer(avoided.pattern, line, re.IGNORECASE)
    ]


def counted() -> list[Path]:
    """All pages but the changelog, which grows."""
    return [page for page in pages() if page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", counted(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_are_in_plain_words(page: Path) -> None:
    assert found(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", READ_AS_A_WHOLE, ids=lambda file: str(file.relative_to(ROOT)))
def test_page_and_examples_are_in_plain_words(file: Path) -> None:
    assert found(file.read_text(encoding="utf-8")) == []


def test_the_program_speaks_in_plain_words() -> None:
    wrong = [f"{module.relative_to(ROOT)}:{line}: {place}" for module, line, text in texts() for place in found(text)]
    assert wrong == []


def test_titles_of_experiments_are_among_what_the_program_says() -> None:
    said = {text for _, _, text in texts()}
    assert {load(name).TITLE for name in EXPERIMENTS} <= said


def test_messages_are_found_as_they_are_read(tmp_path: Path) -> None:
    """Helps, messages over several lines, those with figures in them; and no text that only readers of the code see."""
    module = tmp_path / "module.py"
    module.write_text(
        '"""It is told."""\nfail(f"{count} tuples "\n     "a second")\nfail(hint="the dear one")\n'
        'LIMIT = 3\n"""Told by."""\n'
    )
    assert [text for _, text in literals(module)] == ["… tuples a second", "the dear one"]
    helps = [text for _, text in literals(SOURCE / "cli" / "top.py")]
    assert any(text.startswith("Show rates, latency against target") for text in helps)
    assert any("holds no figures yet" in text for text in helps)


@pytest.mark.parametrize("avoided", AVOIDED, ids=lambda avoided: avoided.example)
def test_what_to_avoid_is_found_across_lines(avoided: Avoided) -> None:
    assert any(avoided.hint in place for place in found(avoided.example.replace(" ", "\n")))


@pytest.mark.parametrize(
    "text",
    [
        "20 tuples per second",
        "one file per command",
        "The status shows what a batch costs.",
        "CPU of a tuple",
        "how many tuples a batch may hold",
    ],
)
def test_plain_words_are_left_alone(text: str) -> None:
    assert found(text) == []


def test_all_pages_can_be_read_in_an_afternoon() -> None:
    words = {str(page.relative_to(ROOT)): len(page.read_text(encoding="utf-8").split()) for page in counted()}
    longest = sorted(words, key=words.__getitem__, reverse=True)[:5]
    assert sum(words.values()) <= MOST_WORDS, f"say a thing once and link to it; the longest pages: {longest}"


def test_the_glossary_explains_only_words_that_are_used() -> None:
    glossary = ROOT / "docs" / "glossary.md"
    elsewhere = " ".join(page.read_text(encoding="utf-8").lower() for page in counted() if page != glossary)
    terms = re.findall(r"^- \*\*(.+?)\*\*: ", glossary.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(terms) > 40
    assert [word for term in terms for word in term.strip("`").lower().split(", ") if word not in elsewhere] == []


def test_a_decision_record_is_short() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    assert records
    long = [record.name for record in records if len(record.read_text().split()) > MOST_WORDS_OF_A_RECORD]
    assert long == []
