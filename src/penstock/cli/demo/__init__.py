"""`penstock demo`: the main job end to end, with checks."""
