"""What calls cost: prices, usual lengths of answers, and how long and when prompts are kept in the cache."""
