"""Runs that replay or do again the last commits of a repository, and what they measured."""
