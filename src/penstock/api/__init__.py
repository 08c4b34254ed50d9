"""The JetStream API: requests on `$JS.API.>` and their answers.

`endpoints` is the table of what can be asked, `dispatch` finds the entry and answers; the handlers
are in modules by what they are about, and `requests` and `responses` are the documents. Nothing
here knows of sockets, and nothing changes state but through streams and consumers.
"""
