from penstock.store.engine import Engine

class Outtake:
    """The quick way out for message after message; only compiled code can use it."""

    def __init__(self, engine: Engine) -> None: ...
