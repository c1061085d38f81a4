"""Reports as pages: one HTML file each, with all that it shows in it. What is on a page is its maker's affair."""
