"""The JetStream API: requests on `$JS.API.>` and their answers.

`endpoints` is the table of requests, `dispatch` finds the entry and answers. Handlers stand in
modules by subject, and `documents` has the requests' and answers' fields. Nothing here knows
sockets, and state is changed through streams and consumers only.
"""
