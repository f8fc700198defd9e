"""Facts of sessions and trees, the stimuli behind them, and the configuration that is the first fact."""
