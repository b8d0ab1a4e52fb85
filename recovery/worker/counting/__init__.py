"""What the processes of a worker count: their values, and the files that hold these for the worker's parent."""
