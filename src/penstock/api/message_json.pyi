from penstock.store.log.block import StoredMessage
from penstock.text.json.write import Encoded

def message_json(message: StoredMessage, with_headers: bool) -> Encoded:
    """Return the JSON of a message, with its headers or without."""
