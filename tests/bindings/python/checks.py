"""What the programs of the ranks share. (pytest takes longer to import than a program to run.)"""

import contextlib
import re


class Caught:
    value = None


@contextlib.contextmanager
def raises(kinds, match=""):
    """The block raises one of kinds, with a message that matches."""
    caught = Caught()
    try:
        yield caught
    except kinds as error:
        assert re.search(match, str(error)), f"no {match!r} in {error!r}"
        caught.value = error
    else:
        raise AssertionError(f"nothing was raised, but {kinds} with {match!r} should be")
