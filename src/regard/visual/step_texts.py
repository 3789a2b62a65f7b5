"""Why a step that a layer has is not shown, in English and Korean, for the page and for figures."""

MISSING: dict[str, dict[str, str]] = {
    "inputs": {
        "en": "The input X was not recorded: regard.capture(model, inputs=True) records it.",
        "ko": "입력 X가 기록되지 않았습니다. regard.capture(model, inputs=True)가 기록합니다.",
    },
    "earlier": {
        "en": "The keys were projected at earlier steps, whose inputs X are gone.",
        "ko": "키는 이전 스텝에서 이미 투영되어 그 입력 X가 남아 있지 않습니다.",
    },
    "layer": {
        "en": "Queries, keys and values are not simply X·W_Q, X·W_K and X·W_V in this layer.",
        "ko": "이 층의 쿼리, 키, 밸류는 X·W_Q, X·W_K, X·W_V 그대로가 아닙니다.",
    },
    "scores": {
        "en": "The scores before the normalization were not recorded.",
        "ko": "정규화하기 전의 점수가 기록되지 않았습니다.",
    },
    "selected": {
        "en": "Only some of the heads were selected, and W_O takes all of them.",
        "ko": "일부 헤드만 골랐습니다. W_O에는 모든 헤드가 필요합니다.",
    },
}
"""By the reasons of `regard.analysis.steps`."""
