"""One file per way rows are written down; `data.read` picks among them by content."""
