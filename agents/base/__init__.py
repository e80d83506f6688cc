"""What all agents share: texts for models and from them, and transcripts. Imports nothing else of the agents."""
