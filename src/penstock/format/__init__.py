"""The store on disk as bytes. `README.md` beside this file is the normative specification.

`reader` opens a stream's directory read-only; it is what recovery and Spark share. Nothing in this
package opens a file for writing, waits, or knows of a server.
"""
