"""Training on several processes with Paddle's fleet.  The only package that imports paddle.distributed."""
