"""Every text of the gallery, in English and Korean."""

from typing import NamedTuple


class PageText(NamedTuple):
    """What is written around the exhibits in one language."""

    title: str
    introduction: str
    measured: str  # about the costs of the page
    drawn: str  # how the listing was made
    glossary: str
    rooms: str  # for screen readers
    cost: str


class Text(NamedTuple):
    """What is written about one exhibit in one language."""

    name: str
    formula: str
    paper: str
    caption: str


PAGE = {
    "en": PageText(
        title="Attention: a gallery",
        introduction="Every mechanism on the same small input. Each row of a map is one query, "
        "each column one key; bright is a large weight.",
        measured="Costs were measured when this page was made.",
        drawn="Drawn by `{command}`; the page that the command writes beside this file also has "
        "what each costs on your machine.",
        glossary="Every term and its other names: {links}.",
        rooms="rooms",
        cost="{ours} ms for {length} × {length}, {width} wide: {ratio} × the time of torch's dense "
        "attention",
    ),
    "ko": PageText(
        title="어텐션 갤러리",
        introduction="모든 어텐션 방식을 같은 작은 입력에 적용했습니다. 맵의 행은 쿼리, 열은 "
        "키이고 밝을수록 가중치가 큽니다.",
        measured="비용은 이 페이지를 만들 때 측정했습니다.",
        drawn="`{command}` 명령으로 그렸습니다. 이 명령이 옆에 만드는 페이지에는 이 컴퓨터에서 잰 "
        "비용도 있습니다.",
        glossary="모든 용어와 다른 이름: {links}.",
        rooms="전시실",
        cost="길이 {length} × {length}, {width}차원에서 {ours} ms: torch의 일반 어텐션이 걸리는 "
        "시간의 {ratio}배",
    ),
}

GLOSSARIES = {"../glossary.md": "glossary", "../glossary.ko.md": "용어집"}

ROOMS = {  # by the first word of the keys of their exhibits
    "score": {"en": "Score functions", "ko": "점수 함수"},
    "normalizers": {"en": "Normalizers", "ko": "정규화"},
    "masks": {"en": "Masks", "ko": "마스크"},
    "local": {"en": "Local and hard", "ko": "로컬·하드 어텐션"},
    "several": {"en": "Several heads", "ko": "여러 헤드"},
    "positions": {"en": "Positions", "ko": "위치"},
    "efficient": {"en": "Efficient", "ko": "효율적인 어텐션"},
    "two": {"en": "Two inputs, levels, graphs, memory", "ko": "두 입력, 계층, 그래프, 메모리"},
}

NUMBERED = {"query": "쿼리", "word": "단어", "slot": "칸"}  # labels such as "slot 3" in Korean


def label(text: str, language: str) -> str:
    """A label of a map in a language; words of the sentences stay as they are.

    >>> label("slot 3", "ko"), label("slot 3", "en"), label("août", "ko")
    ('칸 3', 'slot 3', 'août')
    """
    word, _, number = text.partition(" ")
    return f"{NUMBERED[word]} {number}" if language == "ko" and word in NUMBERED else text


def _both(
    formula: str | tuple[str, str],
    paper: str | tuple[str, str],
    *,
    en: tuple[str, str],
    ko: tuple[str, str],
) -> dict[str, Text]:
    """The texts of an exhibit by language.

    Args:
        formula, paper: in both languages, or an English and a Korean one
        en, ko: name and caption
    """
    formulas = (formula, formula) if isinstance(formula, str) else formula
    papers = (paper, paper) if isinstance(paper, str) else paper
    return {
        "en": Text(en[0], formulas[0], papers[0], en[1]),
        "ko": Text(ko[0], formulas[1], papers[1], ko[1]),
    }


MASKED = ("w = softmax(s + mask)", "w = softmax(s + 마스크)")
PAIR = {"en": "French queries, English keys.", "ko": "쿼리는 프랑스어, 키는 영어 단어입니다."}
TRAINED = {
    "en": "French queries, English keys, trained on this pair.",
    "ko": "쿼리는 프랑스어, 키는 영어 단어이며 이 문장 쌍으로 학습했습니다.",
}

EXHIBITS = {
    "score-dot": _both("f(q, k) = q · k", "Luong et al. 2015",
        en=("Dot", PAIR["en"]),
        ko=("내적", PAIR["ko"])),
    "score-scaled-dot": _both("f(q, k) = q · k / √d", "Vaswani et al. 2017",
        en=("Scaled dot", PAIR["en"]),
        ko=("스케일드 닷 프로덕트", PAIR["ko"])),
    "score-cosine": _both("f(q, k) = β cos(q, k)", "Graves et al. 2014",
        en=("Cosine", PAIR["en"]),
        ko=("코사인 유사도", PAIR["ko"])),
    "score-general": _both("f(q, k) = qᵀ W k", "Luong et al. 2015",
        en=("General", PAIR["en"]),
        ko=("일반(general)", PAIR["ko"])),
    "score-biased-general": _both("f(q, k) = kᵀ (W q + b)", "Sordoni et al. 2016",
        en=("Biased general", PAIR["en"]),
        ko=("편향을 더한 일반(biased general)", PAIR["ko"])),
    "score-activated-general": _both("f(q, k) = tanh(kᵀ W q + b)", "Ma et al. 2017",
        en=("Activated general", TRAINED["en"]),
        ko=("활성화 함수를 씌운 일반(activated general)", TRAINED["ko"])),
    "score-additive": _both("f(q, k) = wᵀ tanh(W₁ q + W₂ k)", "Bahdanau et al. 2015",
        en=("Additive", TRAINED["en"]),
        ko=("덧셈(additive)", TRAINED["ko"])),
    "score-concat": _both("f(q, k) = wᵀ tanh(W [q ; k])", "Luong et al. 2015",
        en=("Concat", TRAINED["en"]),
        ko=("연결(concat)", TRAINED["ko"])),
    "score-location": _both(("f(q, position) = W q", "f(q, 위치) = W q"), "Luong et al. 2015",
        en=("Location", TRAINED["en"]),
        ko=("위치(location)", TRAINED["ko"])),
    "score-soft-cap": _both("f(q, k) = c · tanh(q · k / (c √d))", "Gemma Team 2024 (Gemma 2)",
        en=("Soft cap", PAIR["en"]),
        ko=("소프트 캡", PAIR["ko"])),
    "score-elementwise": _both(
        ("f(q, k) = g(q · k / √d), here g = max(s, 0)",
         "f(q, k) = g(q · k / √d), 여기서는 g = max(s, 0)"),
        ("any function of any score", "어떤 점수 함수에든 어떤 함수든"),
        en=("Elementwise", PAIR["en"]),
        ko=("원소별 함수", PAIR["ko"])),
    "score-your-own": _both("f(q, k) = − |q − k|",
        ("any callable", "호출할 수 있는 것이면 무엇이든"),
        en=("Your own", PAIR["en"]),
        ko=("직접 만든 함수", PAIR["ko"])),
    "normalizers-softmax": _both("w = e^s / Σ e^s", ("standard", "표준"),
        en=("Softmax", "Every key gets some weight."),
        ko=("소프트맥스", "모든 키가 조금이라도 가중치를 받습니다.")),
    "normalizers-sparsemax": _both("w = max(s − τ, 0)", "Martins & Astudillo 2016",
        en=("Sparsemax", "Most keys get none."),
        ko=("스파스맥스", "대부분의 키는 가중치가 0입니다.")),
    "normalizers-1-5-entmax": _both("w = max(s/2 − τ, 0)²", "Peters et al. 2019",
        en=("1.5-entmax", "Between softmax and sparsemax."),
        ko=("1.5-엔트맥스", "소프트맥스와 스파스맥스의 중간입니다.")),
    "normalizers-hard": _both("w = one-hot(argmax s)",
        ("Xu et al. 2015; straight-through gradient, Bengio et al. 2013",
         "Xu et al. 2015; 직통(straight-through) 기울기는 Bengio et al. 2013"),
        en=("Hard", "One key gets all the weight."),
        ko=("하드", "키 하나가 가중치를 모두 받습니다.")),
    "normalizers-gumbel": _both("w = softmax((s + g) / τ)", "Jang et al. 2017",
        en=("Gumbel", "A relaxed sample: noise g in the scores."),
        ko=("검벨", "점수에 잡음 g를 더한, 부드러운 표본입니다.")),
    "normalizers-sigmoid": _both("w = 1 / (1 + e^−s)", "Ramapuram et al. 2025",
        en=("Sigmoid", "Every key on its own: rows have any sum."),
        ko=("시그모이드", "키마다 따로 계산하므로 행의 합이 1이 아닙니다.")),
    "normalizers-sink": _both(
        ("w = e^s / (e^a + Σ e^s), here a = 0", "w = e^s / (e^a + Σ e^s), 여기서는 a = 0"),
        ("Miller 2023; learned for each head, OpenAI 2025 (GPT-OSS)",
         "Miller 2023; 헤드마다 학습하는 방식은 OpenAI 2025 (GPT-OSS)"),
        en=("Sink", "A row sums to less than one: a query may attend to little."),
        ko=("싱크", "행의 합이 1보다 작습니다. 쿼리가 거의 아무것도 보지 않을 수 있습니다.")),
    "normalizers-temperature": _both("w = softmax(s / τ)", "Hinton et al. 2015",
        en=("Temperature", "Above 1 the weights are flatter."),
        ko=("온도", "1보다 크면 가중치가 더 고르게 퍼집니다.")),
    "normalizers-top-k": _both(
        ("w = softmax of the k largest s", "w = softmax(가장 큰 s k개)"), "Zhao et al. 2019",
        en=("Top-k", "All but two keys get none."),
        ko=("상위 k개", "두 키만 가중치를 받습니다.")),
    "masks-no-mask": _both(MASKED, "Vaswani et al. 2017",
        en=("No mask", "Self-attention: all words to all words."),
        ko=("마스크 없음", "셀프 어텐션: 모든 단어가 모든 단어를 봅니다.")),
    "masks-causal": _both(MASKED, "Vaswani et al. 2017",
        en=("Causal", "Later words are hidden."),
        ko=("인과 마스크", "뒤의 단어는 가려집니다.")),
    "masks-window": _both(MASKED, "Child et al. 2019",
        en=("Window", "Two words back, one ahead."),
        ko=("윈도", "앞의 두 단어와 뒤의 한 단어까지 봅니다.")),
    "masks-lengths": _both(MASKED, ("padding", "패딩"),
        en=("Lengths", "The last words are padding."),
        ko=("길이", "마지막 단어들은 패딩입니다.")),
    "masks-segments": _both(MASKED, ("packing", "패킹"),
        en=("Segments", "Three texts packed into one sequence."),
        ko=("구간", "글 세 편을 한 시퀀스에 이어 붙였습니다.")),
    "masks-packed-documents": _both(MASKED, "Raffel et al. 2020",
        en=("Packed documents",
            "Masks compose with & | ~: no word sees a later one or another text."),
        ko=("이어 붙인 문서",
            "마스크는 & | ~로 합칩니다. 뒤의 단어도, 다른 글도 보이지 않습니다.")),
    "masks-prefix-lm": _both(MASKED,
        ("Raffel et al. 2020, section 3.2.1", "Raffel et al. 2020, 3.2.1절"),
        en=("Prefix LM", "The first words see each other, the others what is before them."),
        ko=("접두사 언어 모델", "앞부분의 단어들은 서로를 보고, 나머지는 자기 앞만 봅니다.")),
    "masks-window-with-sinks": _both(MASKED, "Xiao et al. 2024",
        en=("Window with sinks", "The first word stays visible when the window has moved on."),
        ko=("싱크가 있는 윈도", "윈도가 지나가도 첫 단어는 계속 보입니다.")),
    "masks-window-with-global-tokens": _both(MASKED, "Beltagy et al. 2020",
        en=("Window with global tokens", "Two words see all and are seen by all."),
        ko=("전역 토큰이 있는 윈도", "두 단어는 모두를 보고, 모두에게 보입니다.")),
    "masks-blocks": _both(MASKED, "Child et al. 2019",
        en=("Blocks", "A pattern of blocks of four words."),
        ko=("블록", "네 단어씩 묶은 블록의 무늬입니다.")),
    "local-local-monotonic": _both(("w(s) = softmax over [t − D, t + D]",
        "w(s) = softmax, 범위는 [t − D, t + D]"), "Luong et al. 2015, local-m",
        en=("Local, monotonic", "A window that moves along."),
        ko=("지역, 단조", "윈도가 차례로 움직입니다.")),
    "local-local-predictive": _both(
        "w(s) = softmax(s) · exp(−(s − p)² / 2σ²), p = S · sigmoid(v · tanh(W h))",
        "Luong et al. 2015, local-p",
        en=("Local, predictive",
            "Each query predicts where to look; here it was given the right position."),
        ko=("지역, 예측", "쿼리마다 볼 위치를 예측합니다. 여기서는 맞는 위치를 주었습니다.")),
    "local-hard": _both("C = V[argmax s]", "Xu et al. 2015",
        en=("Hard",
            "One value is fetched; training goes straight through, by Gumbel noise or REINFORCE."),
        ko=("하드",
            "값 하나만 가져옵니다. 직통(straight-through) 추정, 검벨 잡음, REINFORCE로 "
            "학습합니다.")),
    "several-multi-head-head-0": _both(("head = attend(Q W_Q, K W_K, V W_V)",
        "헤드 = attend(Q W_Q, K W_K, V W_V)"), "Vaswani et al. 2017",
        en=("Multi-head, head 0", "Each head has its own projection of the words."),
        ko=("멀티헤드, 헤드 0", "헤드마다 단어를 따로 투영합니다.")),
    "several-grouped-query-head-0": _both(("heads share keys and values",
        "여러 헤드가 키와 밸류를 함께 씀"), "Ainslie et al. 2023",
        en=("Grouped-query, head 0", "Four heads, one set of keys."),
        ko=("그룹 쿼리, 헤드 0", "헤드 네 개가 키 한 벌을 함께 씁니다.")),
    "several-multi-dimensional-feature-0": _both(
        "C_id = Σ_j softmax_j(c · tanh((q_id + k_jd) / c)) v_jd",
        "Shen et al. 2018 (DiSAN)",
        en=("Multi-dimensional, feature 0", "Every feature has a map of its own."),
        ko=("다차원, 특징 0", "특징마다 맵이 따로 있습니다.")),
    "several-differential-head-0": _both("softmax(Q₁ K₁ᵀ / √d) − λ softmax(Q₂ K₂ᵀ / √d)",
        "Ye et al. 2024",
        en=("Differential, head 0",
            "Two maps subtracted: trained to attend to the word before; negative is shown as 0."),
        ko=("차분, 헤드 0",
            "맵 두 개의 차이입니다. 바로 앞 단어를 보도록 학습했고, 음수는 0으로 보입니다.")),
    "several-latent-head-0": _both("k = [W_UK c ; RoPE(W_KR x)], v = W_UV c, c = norm(W_DKV x)",
        "DeepSeek-V2 (2024)",
        en=("Latent, head 0",
            "Keys and values from one small vector: trained to attend to the word before."),
        ko=("잠재, 헤드 0",
            "키와 값을 작은 벡터 하나에서 만듭니다. 바로 앞 단어를 보도록 학습했습니다.")),
    "several-pooling-head-0": _both(
        ("C = MultiHead(S, X, X), S learned", "C = MultiHead(S, X, X), S는 학습됨"),
        "Lee et al. 2019 (PMA); Jaegle et al. 2021 (Perceiver)",
        en=("Pooling, head 0",
            "Three learned queries pool the sentence: trained to find subject, verb and date."),
        ko=("풀링, 헤드 0",
            "학습된 쿼리 세 개가 문장을 요약합니다. 주어, 동사, 날짜를 찾도록 학습했습니다.")),
    "positions-sinusoidal": _both(("x + sin / cos(position / 10000^(2i/d))",
        "x + sin / cos(위치 / 10000^(2i/d))"), "Vaswani et al. 2017",
        en=("Sinusoidal", "Positions alone, compared with each other: near ones look alike."),
        ko=("사인파", "위치끼리만 비교했습니다. 가까운 위치일수록 비슷합니다.")),
    "positions-rotary": _both(("q, k turned by position · θ",
        "q, k를 위치 · θ만큼 회전"), "Su et al. 2021",
        en=("Rotary", "The same word everywhere: only distance is left."),
        ko=("회전(RoPE)", "모든 자리에 같은 단어를 두었으므로 거리만 남습니다.")),
    "positions-alibi": _both(("s − slope · |i − j|", "s − 기울기 · |i − j|"), "Press et al. 2022",
        en=("ALiBi", "Far keys are penalized."),
        ko=("ALiBi", "먼 키일수록 점수를 깎습니다.")),
    "positions-yarn": _both(("slow waves of the rotation slower by s",
        "회전의 느린 성분을 s배 더 느리게"), "Peng et al. 2024",
        en=("YaRN", "The same word everywhere: distances count for less, and the scores for more."),
        ko=("YaRN",
            "모든 자리에 같은 단어를 두었습니다. 거리의 영향은 줄고 점수의 영향은 커집니다.")),
    "positions-relative-bias": _both(("s + weight[bucket(j − i)]",
        "s + 가중치[구간(j − i)]"), "Raffel et al. 2020 (T5)",
        en=("Relative bias", "The same word everywhere: trained to attend to the word before."),
        ko=("상대 위치 편향",
            "모든 자리에 같은 단어를 두었습니다. 바로 앞 단어를 보도록 학습했습니다.")),
    "efficient-efficient-attention": _both("C = ρ(Q) (ρ(K)ᵀ V)", "Shen et al. 2018",
        en=("Efficient attention", "The implied map, which is never computed."),
        ko=("효율적인 어텐션", "실제로는 계산하지 않는, 암묵적인 맵입니다.")),
    "efficient-efficient-causal": _both("Σ_{j≤i} e^{k_j} v_jᵀ / Σ_{j≤i} e^{k_j}",
        "Shen et al. 2018",
        en=("Efficient, causal", "A running state replaces the past."),
        ko=("효율적인 어텐션, 인과", "계속 갱신되는 상태가 과거를 대신합니다.")),
    "efficient-gated-delta-recurrence": _both(
        "S_t = (I − β_t k_t k_tᵀ) α_t S_{t−1} + β_t k_t v_tᵀ,  o_t = S_tᵀ q_t",
        "Yang et al. 2024",
        en=("Gated delta recurrence",
            "The implied map of a state that decays and corrects itself; negative is shown as 0."),
        ko=("게이트 델타 순환",
            "스스로 줄어들고 고쳐지는 상태의 암묵적인 맵입니다. 음수는 0으로 보입니다.")),
    "two-co-attention": _both("C = tanh(Qᵀ W_b V)", "Lu et al. 2016",
        en=("Co-attention",
            "The affinity of both sentences, with W_b = 1 / d; negative is shown as 0."),
        ko=("코어텐션", "두 문장의 친화도(affinity)로, W_b = 1 / d입니다. 음수는 0으로 보입니다.")),
    "two-hierarchical": _both(("words → sentences → document, α = softmax(uᵀ tanh(W h + b))",
        "단어 → 문장 → 문서, α = softmax(uᵀ tanh(W h + b))"), "Yang et al. 2016",
        en=("Hierarchical",
            "Two sentences of different length: trained to find the subject and the month."),
        ko=("계층적 어텐션", "길이가 다른 두 문장입니다. 주어와 달 이름을 찾도록 학습했습니다.")),
    "two-graph-attention": _both("e(i, j) = LeakyReLU(aᵀ [W h_i ; W h_j])",
        "Veličković et al. 2018",
        en=("Graph attention",
            "Each word is linked to its neighbours and itself: trained to attend to the next one."),
        ko=("그래프 어텐션",
            "단어는 이웃과 자기 자신에 이어져 있습니다. 다음 단어를 보도록 학습했습니다.")),
    "two-memory-neural-turing-machine": _both(("content β cos(k, M), gate, shift, sharpen",
        "내용 β cos(k, M), 게이트, 이동, 선명화"), "Graves et al. 2014",
        en=("Memory (Neural Turing Machine)",
            "Where the read head attends, word by word: trained to move on by one slot."),
        ko=("메모리(뉴럴 튜링 머신)",
            "단어마다 읽기 헤드가 보는 곳입니다. 한 칸씩 옮겨 가도록 학습했습니다.")),
}  # fmt: skip
