"""Issues and pull requests on forges: GitHub through the user's `gh`, GitLab through the user's `glab`.

The programs are called with argument lists and handle authentication: fleet never reads a token. Answers of a forge
were written by others. They are parsed here, kept unchanged, and escaped when they are shown.
"""
