from penstock.api.shown_configs import ShownConfigs
from penstock.consumer.config.config import ConsumerConfig
from penstock.consumer.consumer import Consumer
from penstock.text.json.write import Encoded

def consumer_json(consumer: Consumer, now_ns: int, config: Encoded) -> Encoded:
    """Return the info document of a consumer, with what is shown of its configuration."""

def consumers_json(
    consumers: list[Consumer], now_ns: int, configs: ShownConfigs[ConsumerConfig]
) -> bytes:
    """Return the info documents of some consumers of one stream, with commas between them."""
