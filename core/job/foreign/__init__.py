"""Jobs of other trainers, read into ours: what was mapped, what was changed, and what has no place here and why."""
