"""Batches: the arrays and infos of results, as the pool hands them to the caller."""
