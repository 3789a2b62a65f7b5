// The texts of the interface in English and Korean, and the display of tokens and numbers.

const TEXTS = {
  en: {
    title: "Attention map",
    layer: "Attention",
    share: "Share of each row's weight shown as links",
    colors: "Colours",
    curve: "Colour scale",
    linear: "linear",
    root: "square root (brings out small weights)",
    scaleRange: "Range",
    fixed: "0 to 1",
    data: "0 to the largest weight",
    viridis: "viridis",
    gray: "grey",
    theme: "Theme",
    auto: "system",
    light: "light",
    dark: "dark",
    language: "Language",
    checkpoint: "Checkpoint",
    play: "Play",
    pause: "Pause",
    strip: "Links",
    stripHelp: "Point at a word to see only its links. Click or press Enter to pin it, Escape to unpin.",
    queries: "Queries: {side}",
    keys: "Keys: {side}",
    heatmap: "Map",
    heatmapHelp: "A row per query, a column per key. Arrow keys move, + and − zoom, 0 shows all, Enter pins a cell. Drag to move, Ctrl + wheel to zoom.",
    zoomIn: "Zoom in",
    zoomOut: "Zoom out",
    fit: "Show all",
    heads: "Heads",
    headsHelp: "Click to select a head. Shift + click, or the space bar, adds or removes a head: the other views show the mean of the selected heads.",
    sort: "Order",
    byLayer: "by layer",
    entropy: "most focused first",
    sink: "most weight on the first key",
    diagonal: "closest to the diagonal",
    previous: "most weight on the previous key",
    next: "most weight on the next key",
    head: "{name}, head {head}: entropy {entropy} of {most} nats, first key {sink}, diagonal {diagonal}",
    headShort: "head {head}",
    mean: "mean of heads {count}",
    graph: "Graph",
    graphHelp: "Words are nodes, weights are edges. Arrow keys change the query.",
    graphPart: "The neighbourhood of the selected query: {shown} of {all} words.",
    workflow: "Step by step",
    workflowHelp: "How attention is computed for one query, with the numbers of the model.",
    table: "Table",
    tableHelp: "The same links as text.",
    query: "Query",
    attends: "attends to",
    sentence: "{query} attends {weight} to {key}",
    also: "{weight} to {key}",
    received: "{key} receives {weight} from {query}",
    nothing: "{query} attends to nothing",
    choose: "Point at a word or a cell.",
    locked: "pinned; Escape to unpin",
    before: "Earlier rows",
    after: "Later rows",
    range: "rows {from} to {to} of {all}",
    below: "less than {weight}",
    pooled: "Long input: the {k} largest weights of each row are exact; the rest is max-pooled.",
    notRecorded: "The states behind this map were not recorded, so only its weights can be shown.",
    states: "1. States",
    statesHelp: "The query and every key are vectors.",
    projections: "2. Projections",
    additive: "W₁q for the query and W₂k for every key.",
    dot: "The vectors whose dot product is the score.",
    pair: "3. Score of one pair",
    pairAdditive: "tanh(W₁q + W₂k) for the key {key}, then the dot product with w:",
    pairDot: "q ∘ k for the key {key}; its sum, times {scale}, is the score:",
    scores: "4. Scores → mask → weights",
    score: "score",
    masked: "hidden",
    exponent: "e^(score − largest)",
    weight: "weight",
    weights: "Weights",
    key: "key",
    value: "value",
    context: "5. Weighted sum",
    contextHelp: "Σ weight · value: the result for this query.",
    distribution: "6. Output",
    distributionHelp: "The most likely next words.",
    allHeads: "All heads",
    allHeadsHelp: "The same query in every head: the largest weights, the weighted sum of each head, their concatenation, and its projection by W_O.",
    concatenation: "concatenation",
    projected: "W_O · concatenation",
    sums: "Σ weight · value",
    skip: "Skip to the map",
    provenance: "How this map was computed",
    settings: "Settings",
  },
  ko: {
    title: "어텐션 맵",
    layer: "어텐션",
    share: "행마다 선으로 보일 가중치의 몫",
    colors: "색",
    curve: "색 눈금",
    linear: "선형",
    root: "제곱근 (작은 가중치가 잘 보임)",
    scaleRange: "범위",
    fixed: "0에서 1까지",
    data: "0에서 가장 큰 가중치까지",
    viridis: "비리디스",
    gray: "회색",
    theme: "테마",
    auto: "시스템 설정",
    light: "밝게",
    dark: "어둡게",
    language: "언어",
    checkpoint: "체크포인트",
    play: "재생",
    pause: "멈춤",
    strip: "연결",
    stripHelp: "어느 줄이든 단어를 가리키면 그 연결만 보입니다. 클릭하거나 Enter를 누르면 고정되고 Esc로 풀립니다.",
    queries: "쿼리: {side}",
    keys: "키: {side}",
    heatmap: "어텐션 맵",
    heatmapHelp: "행은 쿼리, 열은 키입니다. 화살표로 이동, +와 −로 확대·축소, 0은 전체 보기, Enter는 고정. 끌어서 옮기고 Ctrl을 누른 채 휠을 돌려 확대합니다.",
    zoomIn: "확대",
    zoomOut: "축소",
    fit: "전체 보기",
    heads: "헤드",
    headsHelp: "클릭하면 헤드 하나를 고릅니다. Shift+클릭이나 스페이스 바로 더하거나 뺄 수 있고, 다른 보기는 고른 헤드의 평균을 보입니다.",
    sort: "순서",
    byLayer: "층 순서",
    entropy: "가장 집중된 것부터",
    sink: "첫 키에 쏠린 것부터",
    diagonal: "대각선에 가까운 것부터",
    previous: "바로 앞 키를 보는 것부터",
    next: "바로 뒤 키를 보는 것부터",
    head: "{name}, 헤드 {head}: 엔트로피 {entropy} (최대 {most} 나트), 첫 키 {sink}, 대각선 {diagonal}",
    headShort: "헤드 {head}",
    mean: "헤드 {count}의 평균",
    graph: "그래프",
    graphHelp: "단어는 노드, 가중치는 간선입니다. 화살표로 쿼리를 바꿉니다.",
    graphPart: "고른 쿼리의 이웃: 단어 {all}개 중 {shown}개.",
    workflow: "단계별로 보기",
    workflowHelp: "쿼리 하나가 어텐션을 지나는 과정을 실제 숫자로 보입니다.",
    table: "표",
    tableHelp: "같은 연결을 글로 적은 것입니다.",
    query: "쿼리",
    attends: "주목하는 곳",
    sentence: "{query} → {key}: {weight} 주목",
    also: "{key}: {weight}",
    received: "{key} ← {query}: {weight} 받음",
    nothing: "{query}: 아무 데도 주목하지 않음",
    choose: "단어나 칸을 가리켜 보세요.",
    locked: "고정됨, Esc로 해제",
    before: "앞쪽 행",
    after: "뒤쪽 행",
    range: "{all}행 중 {from}–{to}행",
    below: "{weight} 미만",
    pooled: "긴 입력: 행마다 가장 큰 가중치 {k}개는 정확하고, 나머지는 최댓값 풀링으로 그립니다.",
    notRecorded: "이 맵을 만든 상태가 기록되지 않아 가중치만 보입니다.",
    states: "1. 상태",
    statesHelp: "쿼리와 키는 모두 벡터입니다.",
    projections: "2. 투영",
    additive: "쿼리는 W₁q, 키는 저마다 W₂k가 됩니다.",
    dot: "내적하면 점수가 되는 벡터들입니다.",
    pair: "3. 한 쌍의 점수",
    pairAdditive: "키 {key}에 대한 tanh(W₁q + W₂k), 그리고 w와의 내적:",
    pairDot: "키 {key}에 대한 q ∘ k. 그 합에 {scale}을 곱하면 점수:",
    scores: "4. 점수 → 마스크 → 가중치",
    score: "점수",
    masked: "가려짐",
    exponent: "e^(점수 − 최댓값)",
    weight: "가중치",
    weights: "가중치",
    key: "키",
    value: "밸류",
    context: "5. 가중합",
    contextHelp: "Σ 가중치 · 밸류: 쿼리가 얻는 것입니다.",
    distribution: "6. 출력",
    distributionHelp: "다음에 올 만한 단어들입니다.",
    allHeads: "모든 헤드",
    allHeadsHelp: "같은 쿼리를 모든 헤드에서 봅니다: 순위를 매긴 키, 헤드마다의 가중합, 이어 붙인 것, W_O를 거친 것.",
    concatenation: "이어 붙이기",
    projected: "W_O · 이어 붙인 벡터",
    sums: "Σ 가중치 · 밸류",
    skip: "맵으로 건너뛰기",
    provenance: "이 맵을 계산한 방법",
    settings: "설정",
  },
};

// names of sequences and of what a trace recorded; in English they are as they are
const NAMES = {
  ko: {
    source: "입력(원문)", target: "출력(번역)", prefix: "지금까지의 출력", document: "문서", sentence: "문장", word: "단어",
    image: "이미지", patch: "조각", node: "노드", neighbour: "이웃", step: "단계", slot: "메모리 칸", row: "행", symbol: "기호",
    user: "사용자", past: "지난 항목", glimpse: "살펴보기", left: "왼쪽", right: "오른쪽",
    path: "계산 경로", dtype: "자료형", device: "장치", score: "점수 함수", normalizer: "정규화", mask: "마스크",
    dropout: "드롭아웃", heads: "헤드", rows: "행", steps: "단계 수", module: "모듈", shape: "모양", scale: "배율",
  },
};

export const LANGUAGES = { en: "English", ko: "한국어" };

/** A text in a language, with {names} filled in. */
export function translate(language, key, values = {}) {
  const text = (TEXTS[language] ?? TEXTS.en)[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** The name of a sequence, such as "source", or of something recorded, such as "path". */
export function nameText(language, name) {
  return NAMES[language]?.[name] ?? name;
}

/** A token as text: no marks of word starts (▁, Ġ), visible blanks and control characters. */
export function tokenText(token) {
  if (token === "") return "∅";
  return token
    .replace(/^[▁Ġ]+$/, (marks) => " ".repeat(marks.length))
    .replace(/^[▁Ġ]+/, "")
    .replace(/▁/g, " ")
    .replace(/[\u0000-\u001f]/g, (char) => String.fromCodePoint(0x2400 + char.codePointAt(0)))
    .replace(/[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "\ufffd")
    .replace(/^\s+$/, (blank) => "␣".repeat(blank.length));
}

/** A weight with two or three digits. */
export function number(weight) {
  if (weight === 0) return "0";
  return weight >= 0.00995 ? weight.toFixed(2) : weight >= 0.001 ? weight.toFixed(3) : "<0.001";
}

/** Whether most tokens that have a direction are written from right to left. */
export function isRightToLeft(tokens) {
  let count = 0;
  for (const token of tokens.slice(0, 200)) {
    if (/[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(token)) count++;
    else if (/\p{L}/u.test(token)) count--;
  }
  return count > 0;
}
