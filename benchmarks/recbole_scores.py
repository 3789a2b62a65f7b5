"""A RecBole model, trained and stopped by its own trainer, run by the Python that RecBole lives in.

    python recbole_scores.py FOLDER MODEL MINUTES

FOLDER has the dataset ml-100k in atomic files, users.txt and items.txt. After MINUTES the best
epoch so far is taken; the next call goes on from it. The scores of all items for each user, before
the last choice but one and before the last, are written to MODEL.npz. It imports nothing of regard,
since RecBole needs older packages.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.utils import get_model, get_trainer, init_logger, init_seed

SETTINGS = {
    "seed": 1,
    "use_gpu": False,
    "show_progress": False,
    "load_col": {"inter": ["user_id", "item_id", "timestamp"]},
    "eval_args": {
        "split": {"LS": "valid_and_test"},  # leave one out
        "order": "TO",
        "group_by": "user",
        "mode": "full",  # ranked among all items
    },
    "metrics": ["Hit", "NDCG"],
    "topk": [10],
    "valid_metric": "NDCG@10",
}
OWN = {"SASRec": {"train_neg_sample_args": None}}  # its loss is the cross entropy of all items


class OutOfTimeError(Exception):
    """The minutes are over."""


def scores(model, loader, dataset, users, items):
    """Scores (users, items) in the order of the names."""
    columns = dataset.token2id(dataset.iid_field, items)
    rows = {int(number): row for row, number in enumerate(dataset.token2id("user_id", users))}
    found = np.zeros((len(users), len(items)), np.float32)
    for interaction, *_ in loader:
        given = model.full_sort_predict(interaction.to(model.device))
        given = given.view(len(interaction), -1)[:, columns].numpy()
        for user, row in zip(interaction["user_id"].tolist(), given, strict=True):
            found[rows[user]] = row
    return found


def resume(trainer, file):
    """Go on from the best epoch; `resume_checkpoint` of RecBole cannot read it with this torch."""
    best = torch.load(file, weights_only=False)
    trainer.saved_model_file = str(file)
    trainer.start_epoch = best["epoch"] + 1
    trainer.cur_step, trainer.best_valid_score = best["cur_step"], best["best_valid_score"]
    trainer.model.load_state_dict(best["state_dict"])
    trainer.optimizer.load_state_dict(best["optimizer"])


def main(folder, name, minutes):
    sys.argv = sys.argv[:1]  # which RecBole reads as settings
    place = {"data_path": str(folder), "checkpoint_dir": str(folder / "saved")}
    config = Config(name, "ml-100k", config_dict={**SETTINGS, **OWN.get(name, {}), **place})
    init_seed(config["seed"], config["reproducibility"])
    init_logger(config)
    torch.autograd.set_detect_anomaly(False)  # on since another of its models was imported
    dataset = create_dataset(config)
    train, valid, test = data_preparation(config, dataset)
    model = get_model(name)(config, train.dataset).to(config["device"])
    trainer = get_trainer(config["MODEL_TYPE"], name)(config, model)
    for file in sorted((folder / "saved").glob(f"{name}-*.pth"))[-1:]:
        resume(trainer, file)
    end, last = time.monotonic() + 60 * minutes, 0

    def after_epoch(epoch, score):
        nonlocal last
        last = epoch + 1
        if time.monotonic() > end:
            raise OutOfTimeError

    try:
        trainer.fit(train, valid, saved=True, show_progress=False, callback_fn=after_epoch)
        finished = True
    except OutOfTimeError:
        finished = False
    best = torch.load(trainer.saved_model_file, weights_only=False)
    model.load_state_dict(best["state_dict"])
    model.eval()
    users, items = ((folder / f"{kind}.txt").read_text().split() for kind in ("users", "items"))
    with torch.no_grad():
        found = {
            split: scores(model, loader, dataset, users, items)
            for split, loader in (("valid", valid), ("test", test))
        }
    np.savez(folder / f"{name}.npz", epochs=last, finished=finished, **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
