"""Starts pools: from env factories to running workers."""
