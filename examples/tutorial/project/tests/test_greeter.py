import unittest

from greeter import greet


class English(unittest.TestCase):
    def test_it_greets_in_english(self) -> None:
        self.assertEqual(greet("Ada"), "Hello, Ada!")
