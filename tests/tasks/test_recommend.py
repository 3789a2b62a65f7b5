"""The task of ratings: better than popularity, reasons that add up, newcomers, opposites."""

import json

import pytest
import torch

from regard.cli import main
from regard.data.viewers import write_movielens
from regard.tasks import RECIPES, Advisor, load
from regard.tasks.recommend import Recommend
from regard.training import read_config, train

FAST = ["training.threads=1", "training.epochs=8", "training.lr=5e-3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trained for seconds on files in the format of MovieLens."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("recommend")
    write_movielens(folder / "data", users=300, items=150, seed=5)
    config = read_config(RECIPES["recommend"], [*FAST, f"data.path={folder / 'data'}"])
    task = Recommend.from_config(config)
    outcome = train(task, config, folder / "run")
    popular = task.popularity()
    assert outcome.figures["test_hit"] > 1.7 * popular["test_hit"]
    assert outcome.figures["test_ndcg"] > 1.7 * popular["test_ndcg"]
    return folder / "run"


def test_reasons_are_parts_of_the_score(run):
    advisor = load(run)
    assert isinstance(advisor, Advisor)
    found = advisor.recommend("42", count=5)
    place = advisor.ratings.users.index("42")
    had = {advisor.ratings.items[i] for i in advisor.ratings.histories[place]}
    assert not had & {one.item for one in found}
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    titles = {advisor.ratings.titles[i] for i in advisor.ratings.histories[place]}
    assert {reason.what for one in found for reason in one.past} <= titles
    assert all(
        reason.what.split()[0] in ("age", "gender", "occupation") for reason in found[0].profile
    )
    weights = advisor.importance("42")
    assert weights.shape == (150,)
    assert float(weights.sum()) == pytest.approx(1)


def test_somebody_new_is_answered_by_the_profile(run):
    advisor = load(run)
    ratings = advisor.ratings
    kinds = [{"age": "20", "occupation": "artist"}, {"age": "70", "occupation": "retired"}]
    answers = [{one.item for one in advisor.recommend_to(kind, count=15)} for kind in kinds]
    shares = torch.zeros(2, 2)  # how much of what each kind is told is what each kind watches
    for i, kind in enumerate(kinds):
        columns = ratings.user_profiles.encode(kind) > 0
        alike = ratings.user_profiles.rows[:, columns].all(1).nonzero()[0]
        liked = {ratings.items[item] for user in alike for item in ratings.histories[user]}
        for j in range(2):
            shares[j, i] = len(answers[j] & liked) / 15
    assert shares.diagonal().min() > 0.8
    assert shares.diagonal().sum() > shares.flip(0).diagonal().sum() + 0.2


def test_the_command_lists_items_with_reasons(run, tmp_path, capsys):
    figure = tmp_path / "why.png"
    asked = ["--user", "42", "--count", "3", "--figure", str(figure)]
    assert main(["recommend", str(run), *asked]) == 0
    assert figure.stat().st_size > 1000
    shown = capsys.readouterr().out
    assert shown.count("(item ") == 3
    assert ", weight 0." in shown
    assert main(["recommend", str(run), "--profile", "age=30", "--past", "1", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 10
    for arguments, status, complaint in (
        (["--user", "x"], 1, "unknown user 'x'"),
        (["--past", "x"], 1, "unknown item 'x'"),
        (["--profile", "age"], 2, "FIELD=VALUE"),
        (["--profile", "job=king"], 1, "the fields are age, gender, occupation"),
        ([], 2, "give --user"),
    ):
        assert main(["recommend", str(run), *arguments]) == status
        assert complaint in capsys.readouterr().err


def test_learned_projections_let_similarity_lower_a_weight_and_identity_cannot(tmp_path):
    """Only the past item unlike the user tells the next one."""
    hits = {}
    for projections in ("learned", "identity"):
        settings = ["training.threads=1", f"model.projections={projections}"]
        config = read_config(RECIPES["opposites"], settings)
        task = Recommend.from_config(config)
        hits[projections] = train(task, config, tmp_path / projections).figures["test_hit"]
        advisor = load(tmp_path / projections)
        user, t = task.test[0]
        past = torch.from_numpy(task.ratings.histories[user][:t][::-1].copy())
        alike = task.ratings.item_profiles.rows[past] @ task.ratings.user_profiles.rows[user]
        weights = advisor.model.parts(user + 1, task.profiles[user], past).weights
        odd = int(alike.argmin())
        assert (weights.argmax() == odd) == (projections == "learned")
    assert hits["learned"] > 0.8
    assert hits["identity"] < 0.5


def test_ranks_count_all_items_but_those_the_user_has():
    config = read_config(RECIPES["recommend"], ["data.count=23", "data.catalogue=31"])
    task = Recommend.from_config(config)

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


def test_nobody_with_three_choices_is_one_sentence(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("user,item,time\na,x,1\na,y,2\n")
    config = read_config({"task": "recommend", "training": {"steps": 1}}, [f"data.path={path}"])
    with pytest.raises(ValueError, match="nobody has three choices"):
        Recommend.from_config(config)
