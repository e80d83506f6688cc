"""Plans and what planners read: the state, the record of an ended run, saved plans and their differences."""
