"""A custom training loop in plain Paddle: an encoder and a head learn to classify two kinds of sentence.

    python examples/plain_loop.py [MODEL_FOLDER]

`ernie finetune` does this from a YAML file, with evaluation and saving; this is the core of it.
"""

from __future__ import annotations

import numpy as np
import paddle
from models import any_model

from ernie.data.batch import pack
from ernie.model.heads import SequenceHead
from ernie.model.losses import cross_entropy
from tasks.base import single

LABELS = ["numbers", "files"]
TRAIN = [
    ("Return the sum of a list of numbers.", 0),
    ("Open a file and read its lines.", 1),
    ("Compute the square root of a number.", 0),
    ("Write the text to a file on the disk.", 1),
    ("Round the number to the nearest integer.", 0),
    ("Return the size of the file in the folder.", 1),
    ("Return the largest of the numbers.", 0),
    ("Delete the file from the folder.", 1),
]
NEW = ["Return the square of the number.", "Read the text of the file."]


def main() -> None:
    """Train for some steps and classify two new sentences."""
    model = any_model([*NEW, *(text for text, _ in TRAIN)])
    tokenizer = model.tokenizer
    assert tokenizer is not None
    paddle.seed(0)
    head = SequenceHead(model, classes=len(LABELS))
    optimizer = paddle.optimizer.AdamW(5e-4, parameters=[*model.parameters(), *head.parameters()])

    batch = pack([single(tokenizer, tokenizer.encode(text).ids, label=label) for text, label in TRAIN])
    model.train()
    head.train()
    for step in range(30):
        logits = head(model.encode_packed(batch), batch.layout)
        loss = cross_entropy(logits, batch.labels["label"].values)
        mean = loss.total / loss.count
        mean.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % 5 == 0:
            print(f"step {step:2}  loss {float(mean):.3f}")

    model.eval()
    head.eval()
    new = pack([single(tokenizer, tokenizer.encode(text).ids) for text in NEW])
    with paddle.no_grad():
        answers = np.asarray(head(model.encode_packed(new), new.layout).argmax(-1))
    for text, answer in zip(NEW, answers, strict=True):
        print(f"{text}  {LABELS[answer]}")


if __name__ == "__main__":
    main()
