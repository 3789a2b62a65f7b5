"""Generated ratings: rules, not vectors, decide what a viewer watches next."""

import random

from regard.data.ratings import GENRES, Ratings

OCCUPATIONS = ("student", "engineer", "artist", "teacher", "nurse", "retired")
Event = tuple[str, str, float]
Table = dict[str, dict[str, str]]


def generate_viewers(users: int = 500, items: int = 300, *, seed: int = 0) -> Ratings:
    """Generate a history for each viewer, by rules.

    Films come in series of one to five parts, each series of one genre and decade, some much more
    popular than others. At every step a viewer

    - continues a series, in the order of its parts (45 %),
    - starts a series of a genre that this occupation and age prefer (40 %), or
    - starts a popular series (15 %),

    and never watches a film twice. The genres of an occupation are random, and change with age.
    """
    return Ratings.of(*draw_viewers(users, items, seed=seed))


def draw_viewers(
    users: int, items: int, *, seed: int = 0
) -> tuple[list[Event], Table, Table, dict[str, str]]:
    """The events and tables of `generate_viewers`: events, users, items, titles."""
    if users < 1 or items < 20:
        raise ValueError(f"needs at least 1 user and 20 items, got {users} and {items}")
    rng = random.Random(f"viewers {seed}")
    genres = GENRES[1:13]
    films: Table = {}
    titles: dict[str, str] = {}
    series: list[list[str]] = []
    while len(films) < items:
        genre, decade = rng.choice(genres), rng.choice((1960, 1970, 1980, 1990))
        length = min(rng.choice((1, 2, 3, 4, 5)), items - len(films))
        series.append([])
        for part in range(1, length + 1):
            name = str(len(films) + 1)
            films[name] = {"genre": genre, "decade": f"{decade}s"}
            titles[name] = f"{genre} {len(series)}, part {part} ({decade + 2 * part - 1})"
            series[-1].append(name)
    fame = [1.0 / (1 + rank) for rank in range(len(series))]
    rng.shuffle(fame)
    likes = {job: rng.sample(genres, 4) for job in OCCUPATIONS}

    people: Table = {}
    events: list[Event] = []
    for number in range(1, users + 1):
        age, job = rng.randint(15, 74), rng.choice(OCCUPATIONS)
        person = {"age": str(age), "gender": rng.choice("MF"), "occupation": job}
        people[str(number)] = person
        # the young like the first two genres of their occupation, the old the last two
        liked = likes[job][:2] if age < 40 else likes[job][2:]
        mine = [s for s in range(len(series)) if films[series[s][0]]["genre"] in liked]
        seen: dict[int, int] = {}  # parts of each series watched so far
        time = 880_000_000.0 + rng.randint(0, 10_000_000)
        for _ in range(rng.randint(8, 40)):
            chosen = _next(rng, series, seen, mine, fame)
            if chosen is None:
                break
            events.append((str(number), series[chosen][seen.get(chosen, 0)], time))
            seen[chosen] = seen.get(chosen, 0) + 1
            time += rng.randint(60, 600_000)
    return events, people, films, titles


def _next(
    rng: random.Random,
    series: list[list[str]],
    seen: dict[int, int],
    mine: list[int],
    fame: list[float],
) -> int | None:
    """The series whose next part a viewer watches."""
    begun = [s for s, parts in seen.items() if parts < len(series[s])]
    liked = [s for s in mine if s not in seen]
    rest = [s for s in range(len(series)) if s not in seen]
    mood = rng.random()
    if begun and mood < 0.45:
        return begun[-1]  # the latest one
    if liked and mood < 0.85:
        return rng.choices(liked, [fame[s] for s in liked])[0]
    if rest:
        return rng.choices(rest, [fame[s] for s in rest])[0]
    return begun[-1] if begun else None


def generate_opposites(
    users: int = 600, kinds: int = 8, each: int = 5, past: int = 8, *, seed: int = 0
) -> Ratings:
    """Generate histories in which only the item *unlike* the user determines the next one.

    Users and items are of one kind each, which is their profile. A history has `past` items of the
    user's own kind and one of another kind among them, and then the item that follows the odd one
    in a fixed hidden order of all items. Similarity must therefore lower an item's weight. With the
    profiles themselves as queries and keys it can only raise it.
    """
    rng = random.Random(f"opposites {seed}")
    names = [f"kind{kind}" for kind in range(kinds)]
    items = {str(i): {"kind": names[i % kinds]} for i in range(kinds * each)}
    order = list(items)
    rng.shuffle(order)
    follows = dict(zip(order, [*order[1:], order[0]], strict=True))
    people: Table = {}
    events: list[Event] = []
    for number in range(users):
        own = rng.choice(names)
        people[str(number)] = {"kind": own}
        alike = [name for name, fields in items.items() if fields["kind"] == own]
        other = [name for name, fields in items.items() if fields["kind"] != own]
        odd = rng.choice(other)
        history = [*rng.choices(alike, k=past), odd]
        rng.shuffle(history)
        history.append(follows[odd])
        events += [(str(number), item, float(t)) for t, item in enumerate(history)]
    return Ratings.of(events, people, items, {})
