"""What models are trained on: pretraining tasks and kinds of fine-tuning task."""
