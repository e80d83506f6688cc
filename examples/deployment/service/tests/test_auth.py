"""Requirements of the service."""

import unittest

from auth import allowed


class Allowed(unittest.TestCase):
    def test_who_is_known_and_active_comes_in(self) -> None:
        if not allowed("ada", {"ada": True}):
            self.fail("ada stays outside")

    def test_no_one_else_does(self) -> None:
        for name, users in (("bob", {"bob": False}), ("eve", {})):
            if allowed(name, users):
                self.fail(f"{name} came in")
