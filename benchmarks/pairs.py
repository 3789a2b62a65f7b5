"""What the pair classifier of Tatoeba knows: its accuracy, a counted lexicon, and its maps.

    regard train tatoeba-pairs --set seed=1 --out runs/pairs-1     # and other seeds
    python -m benchmarks.pairs runs/pairs-1 runs/pairs-2 runs/pairs-3

For each run it prints the accuracy on the validation and test pairs, that of IBM model 1 on the
same pairs (a table of word translations counted in the same training sentences, whose threshold
the validation pairs choose), and how well the maps of true test pairs join words that translate
each other: over the pairs of `LEXICON`, the weight that the pieces of the Korean word give to the
English one, its share if a map were flat, and how often no other English word gets more. It needs
REGARD_DATA.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from regard.data import Tokenizer
from regard.tasks import PairPredictor, load
from regard.tasks.pair import Data, Input, LabelledPairs, split_pairs

LEXICON = """
톰 tom, 영어 english, 프랑스어 french, 한국어 korean, 집 house home, 학교 school, 책 book books,
친구 friend friends, 물 water, 돈 money, 나 i, 난 i, 너 you, 넌 you, 당신 you, 그 he, 그녀 she,
우리 we, 저 i, 오늘 today, 내일 tomorrow, 어제 yesterday, 시간 time, 이름 name, 고양이 cat cats,
개 dog dogs, 음악 music, 아버지 father, 어머니 mother, 의사 doctor, 선생님 teacher, 커피 coffee,
사과 apple apples, 아침 morning breakfast, 겨울 winter, 여름 summer, 일본 japan, 문 door, 왜 why,
누구 who, 누가 who, 어디 where, 언제 when, 어떻게 how, 뭐 what, 무엇 what, 지금 now,
사람 man person people, 아이 child children, 방 room, 여자 woman girl, 남자 man boy, 차 car,
보스턴 boston, 매우 very, 항상 always, 모두 everyone all, 아무도 nobody, 여기 here, 많은 many,
새 new, 큰 big
"""
PARTICLES = """
은 는 이 가 을 를 에 에서 의 로 으로 와 과 도 만 랑 한테 에게 들 들은 들이 들을
"""
LEAST = 0.1  # a factor added to the ratio of each word, so that an unknown one does not decide


def lexicon() -> list[tuple[str, set[str]]]:
    """The Korean words, each with its English ones."""
    entries = [entry.split() for entry in LEXICON.split(",")]
    return [(korean, set(english)) for korean, *english in entries]


class Meeting(NamedTuple):
    """A word and its translation in a pair of sentences."""

    weight: float  # that the pieces of the Korean word give to the English one
    flat: float  # the same of a flat map
    most: bool  # whether no other English word gets more


def meetings(predictor: PairPredictor, pair: Input) -> Iterator[Meeting]:
    """The words of the lexicon that both sentences of a pair have."""
    trace = predictor.trace(pair)
    weights = trace["left"].map.dense()[0]  # (L, R)
    lefts, rights = (_words(trace.tokens[side]) for side in ("left", "right"))
    for korean, english in lexicon():
        forms = {korean, *(korean + particle for particle in PARTICLES.split())}
        stems = [_stem(word, korean) for word in lefts if _plain(word) in forms]
        targets = [n for n, word in enumerate(rights) if _plain(word) in english]
        if len(stems) != 1 or len(targets) != 1:
            continue
        given = weights[stems[0]].mean(0)  # (R,)
        shares = [float(given[[place for place, _ in word]].sum()) for word in rights]
        (target,) = targets
        flat = len(rights[target]) / len(given)
        yield Meeting(shares[target], flat, shares[target] == max(shares))


Word = list[tuple[int, str]]  # its pieces, with their positions


def _words(tokens: Sequence[str]) -> list[Word]:
    """Pieces by words; signs are words of their own.

    >>> _words(["▁En", "glish", "?"])
    [[(0, '▁En'), (1, 'glish')], [(2, '?')]]
    """
    found: list[Word] = []
    for place, token in enumerate(tokens):
        if token.startswith("▁") or not found or not re.search(r"[\w‥']", token):
            found.append([])
        found[-1].append((place, token))
    return found


def _plain(word: Word) -> str:
    return "".join(piece for _, piece in word).strip("▁").replace("‥", "").lower()


def _stem(word: Word, stem: str) -> list[int]:
    """The positions of the pieces in which letters of the stem begin."""
    places, letters = [], 0
    for place, piece in word:
        if letters < len(stem):
            places.append(place)
        letters += len(piece.strip("▁‥"))
    return places


# ------------------------------------------------------------------ the counted lexicon


class Lexicon:
    """IBM model 1 in both directions, on the pieces of two tokenizers. Brown et al. 1993, 4.4.

    Args:
        pairs: true pairs of training
        left, right: tokenizers
    """

    def __init__(self, pairs: Sequence[Input], left: Tokenizer, right: Tokenizer) -> None:
        self.left, self.right = left, right
        encoded = [self._encode(pair) for pair in pairs]
        sizes = len(left), len(right)
        self.there = _translations(encoded, *sizes)
        self.back = _translations([(two, one) for one, two in encoded], *reversed(sizes))
        self.frequencies = [
            (np.bincount(np.concatenate(side), minlength=size) + 0.5) / sum(map(len, side))
            for side, size in zip(zip(*encoded, strict=True), sizes, strict=True)
        ]

    def score(self, pair: Input) -> float:
        """The mean log ratio of a word's probability given the other sentence and without it."""
        one, two = self._encode(pair)
        there = self.there[np.ix_(np.append(one, 0), two)].mean(0) / self.frequencies[1][two]
        back = self.back[np.ix_(np.append(two, 0), one)].mean(0) / self.frequencies[0][one]
        return float(np.log(there + LEAST).mean() + np.log(back + LEAST).mean())

    def _encode(self, pair: Input) -> tuple[np.ndarray, np.ndarray]:
        return np.unique(self.left.encode(pair[0])), np.unique(self.right.encode(str(pair[1])))


def _translations(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], sources: int, targets: int, rounds: int = 8
) -> np.ndarray:
    """Probabilities of targets given a source (sources, targets); source 0 is the empty word."""
    table = np.full((sources, targets), 1 / targets)
    for _ in range(rounds):
        counts = np.full_like(table, 1e-4)
        for one, two in pairs:
            block = np.ix_(np.append(one, 0), two)
            counts[block] += table[block] / table[block].sum(0)
        table = counts / counts.sum(1, keepdims=True)
    return table


def _threshold(scores: np.ndarray, labels: np.ndarray) -> float:
    """The score above which calling a pair a translation is right most often."""
    return max(scores, key=lambda bound: ((scores >= bound) == labels).mean())


def _accuracy(predictor: PairPredictor, split: LabelledPairs) -> float:
    found = [split.classes.index(one.label) for one in predictor.predict(split.inputs)]
    return float(np.mean(np.array(found) == split.labels))


def main(runs: Sequence[str]) -> None:
    """Print a line for each run."""
    torch.set_num_threads(1)
    heads = ("run", "valid", "test", "lexicon", "words", "weight", "flat", "most")
    print(f"{heads[0]:<24}" + "".join(f"{head:>9}" for head in heads[1:]))
    for run in runs:
        predictor = load(run, PairPredictor)
        assert predictor.right is not None
        splits, _ = split_pairs(predictor.data_settings(Data), predictor.seed)
        train, *held_out = (splits[name] for name in ("train", "valid", "test"))
        accuracy = [_accuracy(predictor, split) for split in held_out]
        true = [pair for pair, label in zip(train.inputs, train.labels, strict=True) if label]
        counted = Lexicon(true, predictor.left, predictor.right)
        scores = [np.array([counted.score(pair) for pair in split.inputs]) for split in held_out]
        labels = [np.array(split.labels) for split in held_out]
        bound = _threshold(scores[0], labels[0])
        test = held_out[1]
        met = [
            one
            for pair, label in zip(test.inputs, test.labels, strict=True)
            if label
            for one in meetings(predictor, pair)
        ]
        weight, flat, most = np.mean(met, axis=0)
        shares = (*accuracy, ((scores[1] >= bound) == labels[1]).mean())
        cells = [f"{share:>9.1%}" for share in shares] + [f"{len(met):>9}"]
        print(f"{run:<24}" + "".join(cells) + f"{weight:>9.2f}{flat:>9.2f}{most:>9.0%}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
