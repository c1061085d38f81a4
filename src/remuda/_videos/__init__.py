"""Videos of whole episodes: recorded beside each env, in whatever process it lives, and joined to a grid."""
