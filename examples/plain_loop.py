"""A custom training loop in plain Paddle: an encoder and a head learn to classify two kinds of sentence.

    python examples/plain_loop.py [MODEL_FOLDER]

`ernie finetune` does this from a YAML file, with evaluation and saving; this is the core of it.
"""

from __future__ import annotations

import paddle
from models import any_model

from ernie import AdamW, precision

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
    classifier = paddle.nn.Linear(model.config.hidden_size, len(LABELS))
    parameters = [*model.parameters(), *classifier.parameters()]
    optimizer = AdamW(5e-4, parameters=parameters, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))

    batch = tokenizer([text for text, _ in TRAIN])
    labels = paddle.to_tensor([label for _, label in TRAIN])
    model.train()
    with precision("auto"):
        for step in range(30):
            logits = classifier(model(**batch).pooler_output)
            loss = paddle.nn.functional.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            if step % 5 == 0:
                print(f"step {step:2}  loss {float(loss):.3f}")

    model.eval()
    with paddle.no_grad(), precision("auto"):
        answers = classifier(model(**tokenizer(NEW)).pooler_output).argmax(-1).tolist()
    for text, answer in zip(NEW, answers, strict=True):
        print(f"{text}  {LABELS[answer]}")


if __name__ == "__main__":
    main()
