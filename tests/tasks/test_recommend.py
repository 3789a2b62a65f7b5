"""Recommendation: better than popularity, reasons that add up, new users, opposites."""

import json
import shutil
from collections import Counter

import pytest
import torch

from regard.cli import main
from regard.recipes import load_recipe
from regard.tasks import Recommender, load
from regard.tasks.recommend import RecommendTask
from regard.training import read_config, train
from tests.data.movielens import write_movielens

HEADING = "features that matter to this user (1 is the average):"
FAST = ["training.threads=1", "training.epochs=8", "training.lr=5e-3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained for seconds on files in the format of MovieLens."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("recommend")
    write_movielens(folder / "data", users=300, items=150, seed=5)
    with (folder / "data" / "u.user").open("a") as users:
        users.write("newcomer|20|F|artist|00000\n")  # who has rated nothing
    config = read_config(load_recipe("recommend"), [*FAST, f"data.path={folder / 'data'}"])
    task = RecommendTask.from_config(config)
    outcome = train(task, config, folder / "run")
    popular = task.popularity()
    assert outcome.metrics["test_hit"] > 1.4 * popular["test_hit"]
    assert outcome.metrics["test_ndcg"] > 1.4 * popular["test_ndcg"]
    return folder / "run"


def test_reasons_are_parts_of_the_score(run):
    predictor = load(run)
    assert isinstance(predictor, Recommender)
    found = predictor.recommend("42", count=5)
    place = predictor.ratings.users.index("42")
    had = {predictor.ratings.items[i] for i in predictor.ratings.histories[place]}
    assert not had & {one.item for one in found}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    titles = {predictor.ratings.titles[i] for i in predictor.ratings.histories[place]}
    assert {reason.what for one in found for reason in one.past} <= titles
    with pytest.raises(ValueError, match="unknown user 'nobody'"):
        predictor.importance("nobody")


def test_features_that_matter_are_those_whose_items_the_profile_attends_to(run):
    predictor = load(run)
    model, ratings = predictor.model, predictor.ratings
    found = dict(predictor.importance("42"))
    assert list(found) == sorted(found, key=lambda what: -found[what])
    profile = torch.from_numpy(ratings.user_profiles.rows[ratings.users.index("42")])
    query = model.query.weight @ profile
    keys = model.item_profiles @ model.key.weight.T
    weights = (keys @ query / len(query) ** 0.5).softmax(0).detach()
    assert {*found} == {*ratings.item_profiles.columns}
    for column, name in enumerate(ratings.item_profiles.columns):
        has = model.item_profiles[:, column] > 0
        expected = float(weights[has].mean() / weights.mean())
        assert found[name] == pytest.approx(expected, rel=1e-4)
    (both,) = predictor.predict(["42"])
    assert dict(both.features) == found
    trace = predictor.trace("42")
    torch.testing.assert_close(trace.select("catalogue").calls[0].map[0, 0], weights)


def test_a_new_user_gets_items_by_the_profile(run):
    predictor = load(run)
    ratings = predictor.ratings
    kinds = [{"age": "20", "occupation": "artist"}, {"age": "70", "occupation": "retired"}]
    answers = [{one.item for one in predictor.recommend_to(kind, count=15)} for kind in kinds]
    shares = torch.zeros(2, 2)  # of the items recommended to kind i, those that kind j watches
    for i, kind in enumerate(kinds):
        columns = ratings.user_profiles.encode(kind) > 0
        alike = ratings.user_profiles.rows[:, columns].all(1).nonzero()[0]
        liked = {ratings.items[item] for user in alike for item in ratings.histories[user]}
        for j in range(2):
            shares[j, i] = len(answers[j] & liked) / 15
    assert shares.diagonal().min() > 0.7
    assert (shares.diagonal() > shares.flip(0).diagonal()).all()  # more than of the others' items


def test_a_user_without_choices_gets_the_items_of_a_new_user(run):
    """Nothing has trained an embedding of its own: by that it would be answered at random."""
    predictor = load(run)
    profile = {"age": "20", "gender": "F", "occupation": "artist"}
    assert predictor.recommend("newcomer") == predictor.recommend_to(profile)
    assert predictor.recommend_to({"age": "99"}) == predictor.recommend_to({"age": "74"})


def test_printed_reasons_add_up_to_the_score(run, capsys):
    for who in ("42", '{"profile": {"age": 30}}'):
        assert main(["predict", str(run), who, "--count", "1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        first, *parts = lines[: lines.index(HEADING)]
        score = float(first.split("score ")[1].removesuffix(")"))
        numbers = [float(part.split()[0]) for part in parts]
        popularity = float(parts[-1].split(", ")[1].split()[0])
        assert sum(numbers) + popularity == pytest.approx(score, abs=0.06)


def test_the_command_lists_items_with_reasons(run, tmp_path, capsys):
    figure = tmp_path / "why.png"
    assert main(["see", str(run), "42", "--count", "3", "--out", str(figure)]) == 0
    assert figure.stat().st_size > 1000
    assert main(["predict", str(run), "42", "--count", "3"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("(item ") == 3
    assert ", weight 0." in shown
    user = '{"profile": {"age": 30}, "past": [1]}'
    assert main(["predict", str(run), user, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["prediction"]
    assert len(found["items"]) == 10
    assert found["features"][0].keys() == {"what", "weight"}
    for user, message in (
        ("x", "unknown user 'x'"),
        ('{"past": ["x"]}', "unknown item 'x'"),
        ('{"profile": "age"}', "'profile' should be dict"),
        ('{"profile": {"job": "king"}}', "the fields are age, gender, occupation"),
        ("{}", "with the key 'user', or 'profile' and 'past'"),
    ):
        assert main(["predict", str(run), user]) == 1
        assert message in capsys.readouterr().err


def test_learned_projections_let_similarity_lower_a_weight_and_identity_cannot(tmp_path):
    """Only the past item unlike the user determines the next one."""
    hits = {}
    for projections in ("learned", "identity"):
        settings = ["training.threads=1", f"model.projections={projections}"]
        config = read_config(load_recipe("opposites"), settings)
        task = RecommendTask.from_config(config)
        hits[projections] = train(task, config, tmp_path / projections).metrics["test_hit"]
        predictor = load(tmp_path / projections)
        user, t = task.test[0]
        past = torch.from_numpy(task.ratings.histories[user][:t][::-1].copy())
        alike = task.ratings.item_profiles.rows[past] @ task.ratings.user_profiles.rows[user]
        weights = predictor.model.parts(user + 1, task.profiles[user], past).weights
        odd = int(alike.argmin())
        assert (weights.argmax() == odd) == (projections == "learned")
    assert hits["learned"] > 0.7
    assert hits["identity"] < 0.5


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut short"])
def test_damaged_ratings_of_a_run_are_a_clear_error(run, tmp_path, content):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "ratings.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"ratings\.npz is damaged or was edited: its checksum"):
        load(copy)
    (copy / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"ratings\.npz is not an npz file, or it is truncated"):
        load(copy)


def test_ranks_count_all_items_but_those_the_user_has():
    config = read_config(load_recipe("recommend"), ["data.count=23", "data.catalogue=31"])
    task = RecommendTask.from_config(config)

    class Oracle(torch.nn.Module):
        """Scores the past highest, then the choice, then the others."""

        def __init__(self, rank):
            super().__init__()
            self.rank = rank

        def forward(self, users, profiles, past, lengths):
            scores = torch.zeros(len(users), 31)
            for row, user in enumerate(users - 1):
                history = task.ratings.histories[user]
                t = int(lengths[row])
                others = [i for i in range(31) if i not in history[: t + 1]]
                scores[row, history[:t]] = 9.0
                scores[row, history[t]] = 5.0
                scores[row, others[: self.rank]] = 7.0
            return type("Found", (), {"scores": scores})

    task.test = [(user, t) for user, t in task.test if t <= 20]
    assert task._ranked(task.test, Oracle(0)) == (1.0, 1.0)
    hit, ndcg = task._ranked(task.test, Oracle(3))
    assert (hit, ndcg) == (1.0, pytest.approx(1 / torch.log2(torch.tensor(5.0)).item()))


@pytest.mark.parametrize("among", ["all", "new"])
def test_a_choice_is_learned_among_all_items_or_those_its_user_does_not_have(among):
    settings = ["data.count=23", "data.catalogue=31", "data.batch=37", f"loss.among={among}"]
    task = RecommendTask.from_config(read_config(load_recipe("recommend"), settings))
    model, batch = task.build().double().eval(), task.batch(0, 0)
    batch = batch._replace(profiles=batch.profiles.double())
    scores = model(*batch[:4]).scores.detach()
    expected = 0.0
    for row, place in zip(scores, task._order(0), strict=False):  # the epoch's first batch
        user, t = task.train[place]
        history = task.ratings.histories[user].tolist()
        items = [i for i in range(31) if among == "all" or i not in history[:t]]
        expected += float(row[items].logsumexp(0) - row[history[t]])
    assert task.loss(model, batch).total.item() == pytest.approx(expected, rel=1e-9)


def test_a_choice_cannot_be_learned_among_new_items_if_it_is_not_new():
    config = read_config(load_recipe("opposites"), ["loss.among=new"])
    with pytest.raises(ValueError, match="some user of this data chose an item again"):
        RecommendTask.from_config(config)


@pytest.mark.parametrize("score", [0.0, float("nan")])
def test_a_model_that_scores_all_items_alike_finds_nothing_by_that(score):
    task = RecommendTask.from_config(read_config(load_recipe("recommend"), ["data.count=23"]))

    class Alike(torch.nn.Module):
        def forward(self, users, profiles, past, lengths):
            return type("Found", (), {"scores": torch.full((len(users), 300), score)})

    assert task.evaluate(Alike()) == {"hit": 0, "ndcg": 0, "test_hit": 0, "test_ndcg": 0}


def test_later_choices_are_neither_in_the_past_nor_in_popularity():
    """A model, or popularity, that saw the validation or test choice would be praised for it."""
    config = read_config(load_recipe("recommend"), ["data.count=29", "data.catalogue=47"])
    task = RecommendTask.from_config(config)
    for moments in (task.train, task.valid, task.test):
        batch = task._choices(moments)
        for row, (user, t) in enumerate(moments):
            history = task.ratings.histories[user].tolist()
            past = batch.past[row, : batch.lengths[row]].tolist()
            assert past == history[max(0, t - task.model.past) : t][::-1]
            assert int(batch.chosen[row]) == history[t] not in past
    held = {*task.valid, *task.test}
    last = {(user, len(h) - k) for user, h in enumerate(task.ratings.histories) for k in (1, 2)}
    assert held == last
    assert not held & set(task.train)
    histories = [history.tolist() for history in task.ratings.histories]
    counts = Counter(item for history in histories for item in history[:-2])
    hits = 0
    for *had, chosen in histories:
        others = [counts[item] for item in range(47) if item not in (*had, chosen)]
        before = sum(n > counts[chosen] for n in others)
        hits += before + sum(n == counts[chosen] for n in others) // 2 < 10
    assert task.popularity()["test_hit"] == hits / 29


def test_a_csv_without_profiles_trains_and_recommends(tmp_path, capsys):
    path = tmp_path / "c.csv"
    rows = [f"u{u},{'영화' if i == 3 else i},{i}\n" for u in range(5) for i in range(u % 2, 6)]
    path.write_text("user,item,time\n" + "".join(rows), encoding="utf-8")
    run = str(tmp_path / "run")
    settings = [f"data.path={path}", "training.epochs=1", "training.threads=1"]
    sets = [part for setting in settings for part in ("--set", setting)]
    assert main(["train", "recommend", *sets, "--out", run]) == 0
    assert main(["predict", run, '{"past": ["영화"]}', "--count", "2"]) == 0
    assert "영화, weight 1.00" in capsys.readouterr().out
    assert main(["predict", run, "u0"]) == 0
    assert "this user has every item" in capsys.readouterr().out


def test_the_file_of_movielens_ratings_stands_for_its_folder(tmp_path):
    write_movielens(tmp_path, users=7, items=23)
    config = {"task": "recommend", "training": {"steps": 1}}
    for path in (tmp_path, tmp_path / "u.data"):
        task = RecommendTask.from_config(read_config(config, [f"data.path={path}"]))
        assert len(task.ratings.users) == 7
        with pytest.raises(ValueError, match=r"belong to a table, but .* format of MovieLens"):
            RecommendTask.from_config(
                read_config(config, [f"data.path={path}", "data.users=u.csv"])
            )


def test_data_without_a_user_of_three_choices_is_a_clear_error(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("user,item,time\na,x,1\na,y,2\n")
    config = read_config({"task": "recommend", "training": {"steps": 1}}, [f"data.path={path}"])
    with pytest.raises(ValueError, match="no user has three choices"):
        RecommendTask.from_config(config)
