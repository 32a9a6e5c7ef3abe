"""What models are trained on: pretraining objectives and kinds of fine-tuning task."""
