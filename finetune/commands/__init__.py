"""The sub-commands of `ernie` for fine-tuning and for using fine-tuned models."""
