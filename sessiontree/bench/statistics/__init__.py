"""What the scores of some samples say about all: reducers of epochs, intervals, and paired comparisons."""
