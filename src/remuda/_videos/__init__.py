"""Videos of whole episodes, which each env's worker records by itself."""
