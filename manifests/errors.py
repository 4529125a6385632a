"""What every package raises when the mistake is the user's."""


class UserError(ValueError):
    """A wrong request: a bad option, config or path.

    The message is one line: what is wrong, both values where two disagree, and the remedy. Command lines print it on
    standard error and end with exit code 2, without a traceback. It never holds credentials.
    """
