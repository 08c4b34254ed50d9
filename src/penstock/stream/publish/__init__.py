"""From a published message to its acknowledgement: the rules of a stream, in their order."""
