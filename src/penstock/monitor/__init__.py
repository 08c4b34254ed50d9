"""Monitoring: pages, metrics and events as plain data, and the HTTP server that shows them.

Nothing here knows clients' sockets or the server object: what is shown comes from a `facts.Source`,
which the server provides. Nothing here changes anything.

Two libraries were measured and are used by the tests alone (Python 3.11, two cores):

- aiohttp would more than double a start with a monitoring port: 260 instead of 120 ms of processor
  time, 46 instead of 32 MB of memory, and the suites of clients start hundreds of servers. It does
  not bound the time of a request's head, the time of reading an answer, or the connections: the
  greater part of `monitor.http` would remain. The tests use its WebSocket client.
- prometheus-client takes ten times as long for the text of /metrics: 217 instead of 22 ms for 1,000
  accounts with 18 metrics, and messages wait meanwhile. It writes counts as floats, which are exact
  to 2**53 only. The tests read the text with its parser.
"""
