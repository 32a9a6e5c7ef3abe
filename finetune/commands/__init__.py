"""The sub-commands of `ernie` that fine-tune and use what was fine-tuned."""
