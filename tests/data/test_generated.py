import re
from collections import defaultdict
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data import GENERATED, SPLITS, generate
from regard.data.dates import ENGLISH, FIRST, KOREAN, LAST, WAYS, korean_number
from regard.data.generated import signal

DAYS = st.dates(FIRST, LAST)


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_the_same_seed_gives_the_same_pairs_and_another_gives_others(name):
    def texts(**more):
        return [(np.asarray(s).tolist(), t) for s, t in generate(name, **more)]

    assert texts(count=11, seed=2) == texts(count=13, seed=2)[:11]
    assert texts(count=11, seed=2) != texts(count=11, seed=3)
    assert texts(count=11, seed=2) != texts(count=11, seed=2, split="test")


@pytest.mark.parametrize("name", ["dates", "reverse", "copy", "signal"])
def test_no_target_is_in_two_splits(name):
    counts = {"train": 3001, "valid": 307, "test": 307}
    kept = {
        split: {
            target for seed in (0, 1) for _, target in generate(name, split, count=n, seed=seed)
        }
        for split, n in counts.items()
    }
    assert kept["train"] & kept["test"] == kept["train"] & kept["valid"] == set()
    assert kept["valid"] & kept["test"] == set()


def test_no_sum_is_in_two_splits_whichever_way_round():
    kept = {
        split: {frozenset(s.split("+")) for s, _ in generate("addition", split, count=2003)}
        for split in SPLITS
    }
    assert kept["train"] & kept["test"] == kept["valid"] & kept["test"] == set()


def test_every_date_of_two_centuries_is_in_a_split_and_most_in_training():
    from regard.data.generated import _dates

    sizes = {split: len(_dates(split)) for split in SPLITS}
    assert sum(sizes.values()) == (LAST - FIRST).days + 1 == 73049
    assert sizes["test"] > 3000
    assert sizes["valid"] > 3000


def test_there_are_twenty_ways_and_both_languages():
    assert len(WAYS) >= 20
    assert len(ENGLISH) >= 10
    assert len(KOREAN) >= 10
    assert len({way(date(1994, 9, 27)) for way in WAYS}) == len(WAYS)


def test_no_text_means_two_dates():
    meanings = defaultdict(set)
    for start in (date(1901, 1, 1), date(2011, 1, 1), date(2012, 1, 1)):
        for day in (start + timedelta(n) for n in range(365)):
            for way in WAYS:
                meanings[way(day)].add(day)
    assert {text for text, days in meanings.items() if len(days) > 1} == set()


@given(DAYS)
def test_digits_in_a_text_are_those_of_the_date(day):
    for way in WAYS:
        numbers = [int(number) for number in re.findall(r"\d+", way(day))]
        packed = day.year * 10000 + day.month * 100 + day.day
        assert set(numbers) <= {day.year, day.month, day.day, packed}


@given(DAYS)
def test_dates_agree_with_the_calendar(day):
    for fmt, way in ((f"%B {day.day}, %Y", 0), ("%d-%b-%Y", 13), ("%Y%m%d", 25)):
        assert ENGLISH[way](day) == day.strftime(fmt)
    assert ENGLISH[16](day).startswith(day.strftime("%A"))
    weekday = "월화수목금토일"[day.weekday()]
    assert KOREAN[3](day) == f"{day.year}년 {day.month}월 {day.day}일 {weekday}요일"


def test_korean_numbers_are_read_as_koreans_read_them():
    expected = {
        1: "일",
        10: "십",
        11: "십일",
        20: "이십",
        31: "삼십일",
        1900: "천구백",
        2000: "이천",
    }
    assert {number: korean_number(number) for number in expected} == expected
    assert KOREAN[10](date(1994, 6, 10)) == "천구백구십사년 유월 십일"


def test_targets_are_what_the_tasks_say():
    assert all(target == source[::-1] for source, target in generate("reverse", count=31))
    assert all(target == source for source, target in generate("copy", count=31))
    for source, target in generate("addition", count=31):
        left, right = source.split("+")
        assert int(left) + int(right) == int(target)
    for _, target in generate("dates", count=31):
        assert date.fromisoformat(target).isoformat() == target


def test_a_signal_spells_its_symbols_under_the_noise():
    clean = {symbol: signal(symbol * 40, seed=3).mean(0) for symbol in "abcdefgh"}
    for frames, target in generate("signal", count=31):
        symbols = target.split()
        assert 3 * len(symbols) <= len(frames) <= 6 * len(symbols)
        assert frames.dtype == np.float32
        scores = np.stack([frames @ clean[s] / np.linalg.norm(clean[s]) for s in clean])
        recognised = {
            list(clean)[i]
            for i, n in enumerate(np.bincount(scores.argmax(0), minlength=8))
            if n > 2
        }
        assert recognised <= {*symbols}


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'dates'"):
        generate("date", count=1)
    with pytest.raises(ValueError, match="did you mean 'train'"):
        generate("dates", "trian", count=1)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        generate("dates", count=0)
