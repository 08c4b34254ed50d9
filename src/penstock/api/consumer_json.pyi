from collections.abc import Callable

from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.consumer import Consumer
from penstock.text.json.write import Encoded

def consumer_json(consumer: Consumer, now_ns: int, config: Encoded) -> Encoded:
    """Return the info document of a consumer, with what is shown of its configuration."""

def consumers_json(
    consumers: list[Consumer], now_ns: int, shown: Callable[[ConsumerConfig], Encoded]
) -> bytes:
    """Return the info documents of some consumers of one stream, with commas between them.

    `shown` returns what is shown of a configuration.
    """
