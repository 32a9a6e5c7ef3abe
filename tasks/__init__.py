"""What is learnt: pretraining objectives and kinds of fine-tuning task."""
