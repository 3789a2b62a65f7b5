"""The terms of the field in English and Korean, and the other names that they have.

One list for everything that names a mechanism: the names that `attend`, layers and models accept,
the glossary, and the searches of the gallery and the studio.

>>> next(term.korean for term in TERMS if "bahdanau" in term.names)
'덧셈 어텐션'
"""

from typing import NamedTuple


class Term(NamedTuple):
    """A term, its Korean rendering, and other names of both.

    Args:
        english: as the glossary has it
        korean: the one rendering in Korean texts
        name: what configurations and calls name it by; None if there is nothing to choose
        names: other names that are accepted there; hyphens and case do not matter
        also: other names of the texts, in any language, which a search finds
        avoid: Korean renderings that these pages do not use, as regular expressions
    """

    english: str
    korean: str
    name: str | None = None
    names: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()


TERMS = (
    # the framework
    Term("attention", "어텐션", also=("주의", "주목", "attention mechanism"), avoid=("주의 기제",)),
    Term("query", "쿼리", also=("질의", "target"), avoid=("질의 벡터",)),
    Term("key", "키", also=("source",)),
    Term("value", "값", also=("밸류",), avoid=("밸류 벡터",)),
    Term(
        "attention score", "어텐션 점수", also=("alignment score", "energy", "정렬 점수", "스코어")
    ),
    Term("attention map", "어텐션 맵", also=("attention matrix", "어텐션 행렬", "어텐션 지도")),
    Term("attention distribution", "어텐션 분포"),
    Term(
        "attention weight", "어텐션 가중치", also=("attention coefficient",), avoid=("주의 가중치",)
    ),
    Term(
        "context vector",
        "문맥 벡터",
        also=("컨텍스트 벡터", "attention value", "어텐션 값"),
        avoid=("맥락 벡터",),
    ),
    # scores; the names of Brauwers & Frasincar 2021 are multiplicative and similarity
    Term("dot product", "내적", "dot", ("dot_product", "multiplicative"), ("닷 프로덕트", "곱셈")),
    Term(
        "scaled dot product",
        "스케일드 닷 프로덕트",
        "scaled_dot",
        ("scaled", "scaled_dot_product", "scaled_multiplicative"),
        ("스케일드 내적",),
        ("축척 내적", "스케일된 내적"),
    ),
    Term(
        "general",
        "일반",
        "general",
        ("bilinear", "learnable_weighted", "luong"),
        ("쌍선형", "학습 가능한 가중", "루옹"),
    ),
    Term("biased general", "편향 일반"),
    Term("activated general", "활성화 일반"),
    Term(
        "additive",
        "덧셈 어텐션",
        "additive",
        ("bahdanau", "mlp"),
        ("바다나우", "가산"),
        ("가산 어텐션", "가산 점수"),
    ),
    Term("concat", "연결", "concat", ("concatenate", "concatenation")),
    Term(
        "cosine similarity",
        "코사인 유사도",
        "cosine",
        ("content_based", "cosine_similarity", "similarity"),
        ("내용 기반",),
        ("여현 유사도",),
    ),
    Term("location", "위치 기반", "location", ("location_based",)),
    # normalizers
    Term("softmax", "소프트맥스", "softmax", ("soft",)),
    Term("1.5-entmax", "1.5-엔트맥스", "entmax15", ("entmax",)),
    Term("sink", "싱크", "sink", ("off_by_one", "softmax1"), ("attention sink",)),
    Term("Gumbel-softmax", "검벨 소프트맥스", "gumbel", ("gumbel_softmax",)),
    # which keys
    Term("soft attention", "소프트 어텐션", avoid=("연성 어텐션",)),
    Term("hard attention", "하드 어텐션", avoid=("경성 어텐션",)),
    Term("global attention", "글로벌 어텐션", also=("전역",), avoid=("전역 어텐션",)),
    Term(
        "local attention",
        "로컬 어텐션",
        also=("지역", "local-m", "local-p"),
        avoid=("지역 어텐션", "지역·"),
    ),
    Term("padding mask", "패딩 마스크", avoid=("채움 마스크",)),
    Term("look-ahead mask", "룩어헤드 마스크", also=("causal", "인과 마스크", "선행 마스크")),
    # who attends to whom
    Term(
        "cross-attention",
        "교차 어텐션",
        also=("distinctive attention", "크로스 어텐션", "구별 어텐션"),
    ),
    Term(
        "self-attention", "셀프 어텐션", also=("자기 어텐션",), avoid=("자기 주의", "자가 어텐션")
    ),
    Term(
        "co-attention",
        "코어텐션",
        also=("상호 어텐션", "공동 어텐션"),
        avoid=("공동 어텐션", "코-어텐션"),
    ),
    Term("hierarchical attention", "계층적 어텐션", also=("HAN", "계층"), avoid=("위계적 어텐션",)),
    Term(
        "generalized attention",
        "일반화 어텐션",
        also=("graph attention", "GAT", "그래프 어텐션", "일반화"),
    ),
    # outputs
    Term(
        "multi-head attention",
        "멀티헤드 어텐션",
        also=("다중 헤드",),
        avoid=("다중 헤드 어텐션", "멀티 헤드"),
    ),
    Term("multi-dimensional attention", "다차원 어텐션", also=("feature-wise attention",)),
    Term("efficient attention", "효율적 어텐션", also=("linear attention", "선형 어텐션")),
    Term(
        "skip connection",
        "스킵 연결",
        also=("residual connection", "잔차 연결"),
        avoid=("건너뛰기 연결",),
    ),
    Term(
        "positional encoding",
        "위치 인코딩",
        also=("포지셔널 인코딩", "positions"),
        avoid=("위치 부호화",),
    ),
    Term(
        "Neural Turing Machine",
        "뉴럴 튜링 머신",
        also=("NTM", "신경 튜링 기계", "memory", "메모리"),
    ),
    Term("dimension", "차원", also=("width", "size"), avoid=("너비", r"(?<!에)폭(?![넓발])")),
    Term("guide", "가이드", avoid=("안내서",)),
    # models
    Term(
        "AttentionSeq2seq",
        "어텐션을 갖춘 seq2seq",
        "attention",
        ("attentionseq2seq", "attention_seq2seq"),
    ),
    Term("peeky decoder", "엿보기 디코더", "peeky", ("peekyseq2seq", "peeky_seq2seq")),
    Term("plain seq2seq", "기본 seq2seq", "plain", ("seq2seq",)),
)


def find_terms(words: str) -> list[Term]:
    """The terms that a search means: each of which some name begins with what was typed.

    >>> [term.english for term in find_terms("로컬")], [term.english for term in find_terms("NTM")]
    (['local attention'], ['Neural Turing Machine'])
    """
    typed = words.strip().lower()
    return [
        term
        for term in TERMS
        if typed
        and any(
            name.lower().startswith(typed)
            for name in (term.english, term.korean, term.name or "", *term.names, *term.also)
        )
    ]
