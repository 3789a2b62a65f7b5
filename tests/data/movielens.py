"""Generated viewers in the format of MovieLens-100k."""

from pathlib import Path

from regard.data.ratings import GENRES
from regard.data.viewers import draw_viewers


def write_movielens(
    folder: str | Path, users: int = 500, items: int = 300, *, seed: int = 0
) -> None:
    """Write the viewers of `generate_viewers` as `u.data`, `u.user` and `u.item`."""
    events, people, films, titles = draw_viewers(users, items, seed=seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = "".join(f"{user}\t{item}\t4\t{time:.0f}\n" for user, item, time in events)
    (folder / "u.data").write_text(data, encoding="latin-1")
    rows = (
        f"{name}|{row['age']}|{row['gender']}|{row['occupation']}|00000\n"
        for name, row in people.items()
    )
    (folder / "u.user").write_text("".join(rows), encoding="latin-1")
    lines = []
    for name, row in films.items():
        flags = "|".join("1" if genre == row["genre"] else "0" for genre in GENRES)
        lines.append(f"{name}|{titles[name]}|01-Jan-{row['decade'][:4]}||http://|{flags}\n")
    (folder / "u.item").write_text("".join(lines), encoding="latin-1")
