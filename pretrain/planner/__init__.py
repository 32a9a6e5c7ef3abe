"""Choose a parallel layout: predict the cost of each one, search them, and print the best."""
