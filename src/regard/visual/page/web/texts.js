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
    noNumbers: "The queries, keys and values behind this map were not recorded, so the steps before the weights cannot be shown.",
    tooLarge: "The numbers behind this map are too large for a page, so the steps before the weights are not shown.",
    oneHead: "These are the weights of several heads. Select one head to see its numbers.",
    input: "Input X",
    inputHelp: "What the layer receives: a vector x of width {width} for the query and for every key.",
    projections: "Projections",
    projectionsHelp: "Every x becomes a query, a key and a value, each of width {width} in this head.",
    compared: "Normalization or positions",
    comparedHelp: "Queries and keys after the layer has normalized or rotated them.",
    scoreProjections: "Projections of the score",
    additiveHelp: "W₁q for the query and W₂k for every key.",
    dotHelp: "The vectors whose dot product is the score.",
    pair: "Score of one pair",
    pairAdditive: "Key {key}: the sum of both projections, its tanh, and the product with w.",
    pairDot: "Key {key}: the product of query and key, number by number, and its sum.",
    pairOther: "This score is a function of its own; its result for each key is in the next step.",
    scores: "Scores → mask → softmax",
    score: "score",
    bias: "bias",
    masked: "hidden",
    hiddenKeys: "Keys hidden by the mask: {count}.",
    noMask: "No key is hidden by a mask.",
    exponent: "e^(score − largest)",
    weight: "weight",
    weights: "Weights",
    key: "key",
    value: "value",
    sum: "Weighted sum",
    sumHelp: "Σ weight · v: the result of this head for this query.",
    sums: "Σ weight · v",
    joined: "Heads joined, W_O",
    joinedHelp: "The same query in every head: the largest weights and the weighted sum of each, all sums one after the other, and their product with W_O.",
    concatenation: "concatenation of all heads",
    projected: "concatenation · W_O: the output of the layer",
    output: "Output of the layer",
    distribution: "Output of the model",
    distributionHelp: "The most likely next words.",
    noDistribution: "The predictions of the model are not part of this trace.",
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
    noNumbers: "이 맵을 만든 쿼리, 키, 밸류가 기록되지 않아 가중치 이전 단계는 보일 수 없습니다.",
    tooLarge: "이 맵을 만든 숫자가 페이지에 담기에는 너무 커서 가중치 이전 단계는 보이지 않습니다.",
    oneHead: "여러 헤드의 가중치입니다. 헤드를 하나만 고르면 숫자가 보입니다.",
    input: "입력 X",
    inputHelp: "층이 받는 것: 쿼리와 키마다 크기 {width}인 벡터 x입니다.",
    projections: "투영",
    projectionsHelp: "모든 x가 쿼리, 키, 밸류가 됩니다. 이 헤드에서 크기는 {width}입니다.",
    compared: "정규화 또는 위치",
    comparedHelp: "층이 정규화하거나 회전한 뒤의 쿼리와 키입니다.",
    scoreProjections: "점수 함수의 투영",
    additiveHelp: "쿼리는 W₁q, 키는 저마다 W₂k가 됩니다.",
    dotHelp: "내적하면 점수가 되는 벡터들입니다.",
    pair: "한 쌍의 점수",
    pairAdditive: "키 {key}: 두 투영의 합, 그 tanh, w와의 곱입니다.",
    pairDot: "키 {key}: 쿼리와 키를 원소별로 곱하고 더합니다.",
    pairOther: "이 점수는 별도의 함수입니다. 키마다의 결과는 다음 단계에 있습니다.",
    scores: "점수 → 마스크 → 소프트맥스",
    score: "점수",
    bias: "바이어스",
    masked: "가려짐",
    hiddenKeys: "마스크에 가려진 키: {count}개.",
    noMask: "마스크에 가려진 키가 없습니다.",
    exponent: "e^(점수 − 최댓값)",
    weight: "가중치",
    weights: "가중치",
    key: "키",
    value: "밸류",
    sum: "가중합",
    sumHelp: "Σ 가중치 · v: 이 쿼리에 대한 이 헤드의 결과입니다.",
    sums: "Σ 가중치 · v",
    joined: "헤드 이어 붙이기, W_O",
    joinedHelp: "같은 쿼리를 모든 헤드에서 봅니다: 헤드마다 가장 큰 가중치와 가중합, 모두 이어 붙인 벡터, 그리고 W_O를 곱한 것입니다.",
    concatenation: "모든 헤드를 이어 붙인 벡터",
    projected: "이어 붙인 벡터 · W_O: 층의 출력",
    output: "층의 출력",
    distribution: "모델의 출력",
    distributionHelp: "다음에 올 만한 단어들입니다.",
    noDistribution: "이 기록에는 모델의 예측이 없습니다.",
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
