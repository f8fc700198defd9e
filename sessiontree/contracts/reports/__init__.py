"""Reports for programs and watchers: events, fan-outs, dry runs and replays."""
