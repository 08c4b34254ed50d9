"""The server: where the concrete parts meet. `server.Server` is what to start and stop.

main, command_line, process   the executable: arguments, signals, exit codes
embedded                      a server inside another program
server                        the composition root; reload changes its options
clients, listeners            connections and how they arrive
accounts/                     users, accounts, operators, imports and exports
jetstream/                    streams of all accounts, and their API
system/                       events and requests of the system account
monitoring                    the live server as facts for `penstock.monitor`
trace/                        message tracing
"""
