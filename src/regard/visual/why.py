"""Why a model wrote a word: tables for a terminal, and one HTML page, in English or Korean."""

import math
from html import escape

from regard.analysis.why import Claim, Why
from regard.visual.display_width import display_width, printable
from regard.visual.html import check_language, html_page

HEADS = 8  # that are shown

TEXTS = {
    "en": {
        "title": "Why {said}, and not {instead}?",
        "sure": "How sure was the model?",
        "sure_text": "{said} {p:.1%}, {instead} {q:.1%}; logit difference {difference:+.2f}",
        "words": "Which words speak for {said}?",
        "words_text": "Signed gradient × attention first, then other methods; τ is the agreement "
        "of a method's order with the first. No method is the truth.",
        "heads": "Which heads speak for {said}?",
        "heads_text": "What a head's output adds to the logit difference, to first order.",
        "claims": "Is that so?",
        "claims_text": "Each was hidden, and the difference measured again: effect is what it "
        "lost. 95 % of {controls} random others of the same size lie in the range.",
        "columns": ("hidden", "score", "effect", "range", "verdict"),
        "word": "word",
        "head": "head",
        "score": "score",
        "confirmed": "confirmed",
        "refuted": "refuted",
        "undecided": "undecided",
    },
    "ko": {
        "title": "왜 {instead}(이)가 아니라 {said}일까?",
        "sure": "모델은 얼마나 확신했나?",
        "sure_text": "{said} {p:.1%}, {instead} {q:.1%}; 로짓 차이 {difference:+.2f}",
        "words": "어떤 낱말이 {said} 쪽을 가리키나?",
        "words_text": "부호 있는 기울기 × 어텐션을 먼저, 다른 방법을 그다음에 둡니다. "
        "τ는 첫 방법과 순서가 얼마나 같은지입니다. 어느 방법도 정답이 아닙니다.",
        "heads": "어떤 헤드가 {said} 쪽을 가리키나?",
        "heads_text": "헤드의 출력이 로짓 차이에 더하는 값(1차 근사).",
        "claims": "정말 그런가?",
        "claims_text": "하나씩 가리고 차이를 다시 쟀습니다. 효과는 줄어든 만큼이고, "
        "범위는 크기가 같은 무작위 {controls}개의 95 %가 드는 곳입니다.",
        "columns": ("가린 것", "점수", "효과", "범위", "판정"),
        "word": "낱말",
        "head": "헤드",
        "score": "점수",
        "confirmed": "확인됨",
        "refuted": "반박됨",
        "undecided": "알 수 없음",
    },
}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff }
table { border-collapse: collapse; margin: 0.5rem 0 }
th, td { padding: 0.15rem 0.6rem; text-align: right; font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left }
thead th { border-bottom: 1px solid #777 }
.for { background: rgba(0, 114, 178, var(--share)) } .against { background: rgba(213, 94, 0, var(--share)) }
.scroll { overflow-x: auto } p { max-width: 45rem }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #111 } }
"""  # noqa: E501

Rows = list[tuple[str, ...]]


def why_text(why: Why, *, language: str = "en") -> str:
    """Tables of text: how sure, which words, which heads, and what interventions say."""
    parts = []
    for title, text, rows in _sections(why, language):
        parts += ["", title, *([text] if text else []), *_aligned(rows)]
    return "\n".join([_texts(why, language)["title"], f"{why.text} → {why.before}", *parts])


def why_page(why: Why, *, language: str = "en") -> str:
    """The same as one HTML page that loads nothing; words and heads are shaded by their numbers."""
    check_language(language)
    title = _texts(why, language)["title"]
    body = f"<h1>{escape(title)}</h1><p>{escape(why.text)} → {escape(why.before)}</p>"
    for heading, text, rows in _sections(why, language):
        body += f"<h2>{escape(heading)}</h2><p>{escape(text)}</p>{_table(rows)}"
    return html_page(f"<main>{body}</main>", title=title, style=STYLE, language=language)


def _texts(why: Why, language: str) -> dict[str, str]:
    p, q = why.probabilities
    values = {
        "said": repr(why.said), "instead": repr(why.instead), "p": p, "q": q,
        "difference": why.difference, "controls": why.controls,
    }  # fmt: skip
    texts = TEXTS[language]
    return {name: text.format(**values) for name, text in texts.items() if isinstance(text, str)}


def _sections(why: Why, language: str) -> list[tuple[str, str, Rows]]:
    """Title, text and table of each part; the first row of a table is its head."""
    texts, columns = _texts(why, language), TEXTS[language]["columns"]
    sure: Rows = [(token, f"{share:.1%}") for token, share in why.competitors]
    names = tuple(
        name if why.agreement[name] > 0.999 else f"{name} (τ {_number(why.agreement[name])})"
        for name in why.methods
    )
    words: Rows = [(texts["word"], *names)]
    for index, word in enumerate(why.words):
        words.append(
            (printable(word), *(_number(scores[index]) for scores in why.methods.values()))
        )
    heads: Rows = [(texts["head"], texts["score"])]
    heads += [(f"{one.name} {one.head}", _number(one.score)) for one in why.heads[:HEADS]]
    claims: Rows = [tuple(columns)]
    claims += [_claim(claim, texts) for claim in why.claims]
    return [
        (texts["sure"], texts["sure_text"], [("", ""), *sure]),
        (texts["words"], texts["words_text"], words),
        (texts["heads"], texts["heads_text"], heads),
        (texts["claims"], texts["claims_text"], claims),
    ]


def _claim(claim: Claim, texts: dict[str, str]) -> tuple[str, ...]:
    limits = f"{_number(claim.low)} … {_number(claim.high)}"
    name = f"{texts[claim.kind]} {printable(claim.name)}"
    score, effect = _number(claim.score), _number(claim.effect)
    return name, score, effect, limits, texts[claim.verdict]


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.3f}"


def _aligned(rows: Rows) -> list[str]:
    """Rows with the first column to the left, and the others to the right."""
    rows = [row for row in rows if any(row)]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(
            (cell + space) if not place else (space + cell)
            for place, cell in enumerate(row)
            for space in [" " * (widths[place] - display_width(cell))]
        ).rstrip()
        for row in rows
    ]  # fmt: skip


def _table(rows: Rows) -> str:
    """A table whose numbers are shaded by their share of the largest of the column."""
    head, *body = rows
    largest = [max((abs(_value(row[c])) for row in body), default=0.0) for c in range(len(head))]
    lines = []
    for row in body:
        cells = [f"<td>{escape(row[0])}</td>"]
        for column, cell in enumerate(row[1:], 1):
            value = _value(cell)
            share = 0.6 * abs(value) / largest[column] if largest[column] else 0.0
            kind = "for" if value > 0 else "against"
            cells.append(f'<td class="{kind}" style="--share: {share:.2f}">{escape(cell)}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head) if any(head) else ""
    top = f"<thead><tr>{top}</tr></thead>" if top else ""
    return f'<div class="scroll"><table>{top}<tbody>{"".join(lines)}</tbody></table></div>'


def _value(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return 0.0
