"""Keep records: the storage engine, blocking and without a network.

`filestore.FileStore` and `memstore.MemoryStore` are the two stores, with one interface in
`interface`. Nothing here is asynchronous; an event loop calls from a thread or gives a
callback.
"""
