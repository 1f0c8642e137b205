"""The one assertion of these tests: a condition, and what it means when it does not hold."""


class Unmet(AssertionError):
    """An expectation that did not hold."""


def expect(condition, otherwise):
    if not condition:
        raise Unmet(otherwise)


def expect_refusal(status, output, *words):
    """A program must have ended with an error that says certain words, and without a crash."""
    expect(status not in (0, 101, 134, 139), f"exit status {status} where a clear error was due:\n{output}")
    for word in words:
        expect(word.lower() in output.lower(), f"the error does not say '{word}':\n{output}")
