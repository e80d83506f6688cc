"""The pages: each is a title and parts, and a part is sent to browsers again when it has changed."""
