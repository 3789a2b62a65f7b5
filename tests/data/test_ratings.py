"""Ratings in the format of MovieLens and from CSV, and what can go wrong."""

import numpy as np
import pytest

from regard.data.profiles import Profiles
from regard.data.ratings import read_movielens, read_ratings
from regard.data.viewers import generate_opposites, generate_viewers
from tests.data.movielens import write_movielens


@pytest.fixture
def movielens(tmp_path):
    write_movielens(tmp_path, users=7, items=23, seed=3)
    return tmp_path


def test_files_of_movielens_hold_what_was_generated(movielens):
    read, made = read_movielens(movielens), generate_viewers(7, 23, seed=3)
    assert (read.users, read.items, read.titles) == (made.users, made.items, made.titles)
    assert all(map(np.array_equal, read.histories, made.histories))
    assert read.user_profiles.columns == made.user_profiles.columns
    assert np.array_equal(read.item_profiles.rows, made.item_profiles.rows)


def test_the_files_are_latin_1_and_in_the_order_of_time(movielens):
    items = movielens / "u.item"
    first, *rest = items.read_text("latin-1").splitlines(keepends=True)
    name, _title, *others = first.split("|")
    items.write_text("|".join([name, "Misérables, Les (1995)", *others]) + "".join(rest), "latin-1")
    (movielens / "u.data").write_text("1\t5\t3\t30\n1\t2\t4\t10\n1\t9\t1\t20\n")
    found = read_movielens(movielens, min_rating=2)
    assert found.titles[0] == "Misérables, Les (1995)"
    assert [found.items[i] for i in found.histories[0]] == ["2", "5"]


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("u.data", "1\t2\t3\n", "line 1: 3 columns instead of 4"),
        ("u.data", "99\t2\t3\t5\n", "line 1: unknown user '99'"),
        ("u.data", "1\t99\t3\t5\n", "line 1: unknown item '99'"),
        ("u.data", "1\t2\tgood\t5\n", "the rating should be a number, got 'good'"),
        ("u.user", "1|20|M|artist|0\n1|30|F|nurse|0\n", "line 2: duplicate user '1'"),
        ("u.user", "", "is empty"),
    ],
)
def test_a_malformed_file_of_movielens_is_one_sentence(movielens, file, line, complaint):
    (movielens / file).write_text(line)
    with pytest.raises(ValueError, match=complaint):
        read_movielens(movielens)


def test_an_item_that_is_there_twice_is_refused(movielens):
    items = movielens / "u.item"
    text = items.read_text("latin-1")
    items.write_text(text + text.splitlines()[4] + "\n", "latin-1")
    with pytest.raises(ValueError, match="line 24: duplicate item '5'"):
        read_movielens(movielens)
    items.unlink()
    with pytest.raises(FileNotFoundError, match=r"file .*u\.item does not exist"):
        read_movielens(movielens)


def test_csv_with_tables_of_users_and_items(tmp_path):
    choices, users, items = (tmp_path / name for name in ("c.csv", "u.csv", "i.csv"))
    choices.write_text("who,item,time,stars\nann,x,2,5\nbob,y,1,5\nann,y,1,4\nann,z,3,1\n")
    users.write_text("who,job\nann,poet\nbob,cook\n")
    items.write_text('item,title,genre\nx,"X, the film",war|drama\ny,Y,war\nz,Z,\n')
    found = read_ratings(
        choices, user="who", rating="stars", min_rating=2, users=users, items=items
    )
    assert [found.titles[i] for i in found.histories[0]] == ["Y", "X, the film"]
    assert found.user_profiles.columns == ["job cook", "job poet"]
    assert found.item_profiles.rows.tolist() == [[1, 1], [0, 1], [0, 0]]
    plain = read_ratings(choices, user="who")
    assert plain.user_profiles.rows.shape == (2, 0)
    assert plain.user_profiles.encode({}).shape == (0,)
    with pytest.raises(ValueError, match="the data has no profiles"):
        plain.user_profiles.encode({"job": "poet"})
    assert plain.count == 4
    users.write_text("who,job\nann,poet\n")
    with pytest.raises(ValueError, match=r"line 3: unknown user 'bob', it is not in .*u\.csv"):
        read_ratings(choices, user="who", users=users)
    with pytest.raises(ValueError, match="no column 'user'"):
        read_ratings(choices)
    choices.write_text("user,item,time\na,b\n")
    with pytest.raises(ValueError, match="line 2: 2 columns instead of 3"):
        read_ratings(choices)


def test_numbers_become_ranges_and_newcomers_find_theirs():
    ages = [str(age) for age in range(10, 70)]
    profiles = Profiles.of({"age": ages, "job": ["cook", "poet"] * 30})
    assert profiles.columns[:2] == ["age 10–19", "age 20–29"]
    assert (profiles.rows.sum(1) == 2).all()
    row = profiles.encode({"age": "25", "job": "poet"})
    assert [profiles.columns[i] for i in row.nonzero()[0]] == ["age 20–29", "job poet"]
    with pytest.raises(ValueError, match="no profile has job 'king'; known: cook, poet"):
        profiles.encode({"job": "king"})
    with pytest.raises(ValueError, match="the fields are age, job"):
        profiles.encode({"jb": "king"})


def test_no_viewer_watches_a_film_twice_and_series_are_watched_in_order():
    found = generate_viewers(31, 53, seed=2)
    for history in found.histories:
        assert len(set(history.tolist())) == len(history)
        seen: dict[str, int] = {}
        for item in history:
            series, part = found.titles[item].split(", part ")
            assert int(part.split()[0]) == seen.get(series, 0) + 1
            seen[series] = seen.get(series, 0) + 1


def test_the_odd_item_alone_tells_the_last_one_of_opposites():
    found = generate_opposites(200, kinds=5, each=3, past=4)
    follows = {}
    for user, history in enumerate(found.histories):
        own = found.user_profiles.rows[user]
        unlike = [i for i in history[:-1] if not found.item_profiles.rows[i] @ own]
        assert len(unlike) == 1
        assert follows.setdefault(unlike[0], history[-1]) == history[-1]


def test_a_number_that_does_not_occur_finds_the_nearest_range_and_no_number_none():
    ages = ["", *(str(age) for age in (*range(10, 40), *range(50, 80)))]
    profiles = Profiles.of({"age": ages})
    assert profiles.rows.shape == (61, 6)  # an empty cell does not make the field one of words
    assert profiles.rows[0].sum() == 0

    def found(age):
        return profiles.columns[int(profiles.encode({"age": age}).argmax())]

    assert [found(age) for age in ("3", "99", "48", "41")] == [
        "age 10–19",
        "age 70–79",
        "age 50–59",
        "age 30–39",
    ]
    with pytest.raises(ValueError, match="no profile has age 'old'; known: 10–19, 20–29"):
        profiles.encode({"age": "old"})
    with pytest.raises(ValueError, match="no profile has age 'nan'"):
        profiles.encode({"age": "nan"})


def test_large_numbers_keep_their_ranges_apart():
    years = [str(880_000_000 + n) for n in range(12)]
    assert len(set(Profiles.of({"since": years}).columns)) == 6


def test_an_item_chosen_again_counts_once_when_it_was_chosen_first(movielens, tmp_path):
    """Items that a user has are not recommended, so that they cannot test a recommendation."""
    (movielens / "u.data").write_text("1\t5\t3\t30\n1\t2\t4\t10\n1\t9\t1\t20\n1\t2\t5\t40\n")
    assert read_movielens(movielens).histories[0].tolist() == [1, 8, 4]
    path = tmp_path / "c.csv"
    path.write_text("user,item,time\na,x,3\na,y,2\na,x,1\nb,x,1\n")
    found = read_ratings(path)
    assert [[found.items[i] for i in history] for history in found.histories] == [["x", "y"], ["x"]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", r"c\.csv is empty"),
        (b"user,item,time\n", r"c\.csv has nothing but column names"),
        (b"user,item,time\na,x,1\ncaf\xe9,x,2\n", r"c\.csv, line 3: the row is not UTF-8"),
        (b"user,item,time\na,x,nan\n", "line 2: the time should be a number, got 'nan'"),
        (b"user,item,time\na,x,-inf\n", "line 2: the time should be a number, got '-inf'"),
    ],
)
def test_a_malformed_csv_of_choices_is_one_sentence(tmp_path, content, complaint):
    path = tmp_path / "c.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        read_ratings(path)


def test_names_in_any_script_and_blank_lines_at_the_end_are_read(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text('user,item,time\n영희,"שלום, עולם",1\n영희,영화,2\n\n', encoding="utf-8")
    found = read_ratings(path)
    assert found.users == ["영희"]
    assert found.items == ["שלום, עולם", "영화"]
