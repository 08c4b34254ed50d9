"""Looking inside: pages, metrics and events as plain data, and the HTTP server that shows them.

Nothing here knows sockets of clients or the server object: what is shown comes from a
`facts.Source`, which the composition root provides. Nothing here changes anything.
"""
