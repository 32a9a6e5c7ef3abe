"""Training on several processes through Paddle's fleet.  The only place that knows paddle.distributed."""
