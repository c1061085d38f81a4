"""Many steps of many envs as one array: filled in place by workers, or elsewhere by shards."""
