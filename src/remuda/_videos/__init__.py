"""Videos of whole episodes: recorded in the process of each env, and joined to a grid."""
