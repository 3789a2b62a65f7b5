"""Dates in English and Korean formats and in ISO 8601."""

from collections.abc import Callable
from datetime import date


def _each(words: str) -> tuple[str, ...]:
    return tuple(words.split())


MONTHS = _each(
    "January February March April May June July August September October November December"
)
DAYS = _each("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
ORDINALS = _each(
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth twenty-first "
    "twenty-second twenty-third twenty-fourth twenty-fifth twenty-sixth twenty-seventh "
    "twenty-eighth twenty-ninth thirtieth thirty-first"
)
ROMAN = _each("I II III IV V VI VII VIII IX X XI XII")
KOREAN_DAYS = "월화수목금토일"
KOREAN_MONTHS = _each("일월 이월 삼월 사월 오월 유월 칠월 팔월 구월 시월 십일월 십이월")

FIRST, LAST = date(1900, 1, 1), date(2099, 12, 31)


def _month(day: date) -> str:
    return MONTHS[day.month - 1]


def _short(day: date) -> str:
    return _month(day)[:3]


def _weekday(day: date) -> str:
    return DAYS[day.weekday()]


def _th(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def korean_number(number: int) -> str:
    """A number below 10,000 in Sino-Korean words.

    >>> korean_number(1994), korean_number(27), korean_number(2010)
    ('천구백구십사', '이십칠', '이천십')
    """
    word = ""
    for place, unit in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        digit = number // place % 10
        if digit:
            word += ("" if digit == 1 and unit else "일이삼사오육칠팔구"[digit - 1]) + unit
    return word


# Every format is unambiguous: years have four digits, slashes mean month first, dots day first.
ENGLISH: tuple[Callable[[date], str], ...] = (
    lambda d: f"{_month(d)} {d.day}, {d.year}",
    lambda d: f"{_month(d).lower()} {d.day}, {d.year}",
    lambda d: f"{_month(d).upper()} {d.day}, {d.year}",
    lambda d: f"{_month(d)} {d.day} {d.year}",
    lambda d: f"{_month(d)} {_th(d.day)}, {d.year}",
    lambda d: f"{d.day} {_month(d)} {d.year}",
    lambda d: f"{_th(d.day)} {_month(d)} {d.year}",
    lambda d: f"the {_th(d.day)} of {_month(d)}, {d.year}",
    lambda d: f"the {ORDINALS[d.day - 1]} of {_month(d)} {d.year}",
    lambda d: f"{_month(d)} the {ORDINALS[d.day - 1]}, {d.year}",
    lambda d: f"{_short(d)} {d.day}, {d.year}",
    lambda d: f"{_short(d)}. {d.day:02}, {d.year}",
    lambda d: f"{d.day} {_short(d)} {d.year}",
    lambda d: f"{d.day:02}-{_short(d)}-{d.year}",
    lambda d: f"{d.day:02}{_short(d).upper()}{d.year}",
    lambda d: f"{d.year} {_short(d)} {d.day}",
    lambda d: f"{_weekday(d)}, {_month(d)} {d.day}, {d.year}",
    lambda d: f"{_weekday(d).lower()}, {d.day} {_month(d).lower()} {d.year}",
    lambda d: f"{_weekday(d)[:3]}, {d.day:02} {_short(d)} {d.year}",
    lambda d: f"{d.month}/{d.day}/{d.year}",
    lambda d: f"{d.month:02}/{d.day:02}/{d.year}",
    lambda d: f"{d.day}.{d.month}.{d.year}",
    lambda d: f"{d.day:02}.{d.month:02}.{d.year}",
    lambda d: f"{d.day}.{ROMAN[d.month - 1]}.{d.year}",
    lambda d: f"{d.year}/{d.month:02}/{d.day:02}",
    lambda d: f"{d.year}{d.month:02}{d.day:02}",
)
KOREAN: tuple[Callable[[date], str], ...] = (
    lambda d: f"{d.year}년 {d.month}월 {d.day}일",
    lambda d: f"{d.year}년{d.month}월{d.day}일",
    lambda d: f"{d.year}년 {d.month:02}월 {d.day:02}일",
    lambda d: f"{d.year}년 {d.month}월 {d.day}일 {KOREAN_DAYS[d.weekday()]}요일",
    lambda d: f"{d.year}년 {d.month}월 {d.day}일({KOREAN_DAYS[d.weekday()]})",
    lambda d: f"서기 {d.year}년 {d.month}월 {d.day}일",
    lambda d: f"{d.year}. {d.month}. {d.day}.",
    lambda d: f"{d.year}.{d.month:02}.{d.day:02}",
    lambda d: f"{d.year}. {d.month}. {d.day}. ({KOREAN_DAYS[d.weekday()]})",
    lambda d: f"{d.year}년 {KOREAN_MONTHS[d.month - 1]} {korean_number(d.day)}일",
    lambda d: f"{korean_number(d.year)}년 {KOREAN_MONTHS[d.month - 1]} {korean_number(d.day)}일",
)
WAYS = ENGLISH + KOREAN
