"""What training scripts would write around their envs by hand: exact evaluation."""
