"""`penstock store …`: stream directories, inspected and maintained without a server."""
